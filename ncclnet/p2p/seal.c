/* Lanes that the kernel seals (its TLS, see package ktls). A record that TCP has no room for waits above TCP: sendmsg
 * has taken it, but the end of the connection drops it. So a send is done only when TCP has all its bytes. Then they
 * arrive, as without TLS, even if this process ends. */
#include <endian.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>
#include <linux/tcp.h> /* tcpi_bytes_acked, which the libc lacks */

#include "comm.h"

enum {
	LEVEL = 282,            /* SOL_TLS */
	OUT = 1,                /* TLS_TX of <linux/tls.h> */
	OVERHEAD = 5 + 1 + 16,  /* bytes of a record beyond what is in it: header, type, tag (RFC 8446, section 5.2) */
};

/* tls12_crypto_info_aes_gcm_256 of <linux/tls.h>. */
struct direction {
	uint16_t version, cipher;
	uint8_t iv[8], key[32], salt[4];
	uint8_t number[8]; /* of the next record, big endian */
};

/* Bytes that TCP has been given on a connection, from some number on. The acknowledged ones are read first: bytes
 * that are acknowledged between the two calls are then missing, instead of counted twice. */
static int written(int fd, uint64_t *bytes)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);
	int queued;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 || ioctl(fd, SIOCOUTQ, &queued) < 0)
		return 0;
	*bytes = info.tcpi_bytes_acked + (uint64_t)queued;
	return 1;
}

int p2p_seal_begin(struct lane *l) { return written(l->fd, &l->before) ? 0 : -1; }

static int records(int fd, uint64_t *number)
{
	struct direction d = {0};
	socklen_t size = sizeof(d);
	int ok = getsockopt(fd, LEVEL, OUT, &d, &size) == 0;

	memcpy(number, d.number, sizeof(*number));
	*number = be64toh(*number);
	explicit_bzero(&d, sizeof(d)); /* the key */
	return ok;
}

int p2p_seal_settle(struct lane *l)
{
	uint64_t number, bytes;

	if (!records(l->fd, &number) || !written(l->fd, &bytes)) {
		p2p_lost(l->comm, "look at what is sealed");
		return 0;
	}
	if (bytes - l->before < l->taken + OVERHEAD * number)
		return 0;
	p2p_settle(l);
	return 1;
}
