#!/usr/bin/env bash
# Allgathers of ranks on three hosts whose link is encrypted below them, by the commands of docs/how-to/secure.md: over MACsec, which
# multicast passes, and over WireGuard, which passes none, so that shards go from rank to rank. Hosts are network namespaces
# on a bridge that snoops; under MACsec eth0 has no address, so that nothing can pass in the clear. One more host, with other
# keys, is heard by nobody. With wpa_supplicant, if it is there, two hosts once more with keys that it renews (MKA).
# Prints what ranks print and what the kernel has counted.
#
#   benchmarks/secret/links.sh                                    # after make build; root, macsec, wireguard, wireguard-tools
#   scripts/rdma-guest --devices 1 -- benchmarks/secret/links.sh      # in an emulated machine, whose kernel has both
set -euo pipefail
cd "$(dirname "$0")/../.."
hosts=3
folder=$(mktemp -d)
forget() {
	for pid in "$folder"/*.pid; do [ ! -e "$pid" ] || kill "$(cat "$pid")"; done
	for ((i = 0; i <= hosts; i++)); do ip netns del "link$i" 2>/dev/null || true; done
	ip link del links 2>/dev/null || true
	rm -rf "$folder"
}
trap forget EXIT

on() { ip netns exec "link$1" "${@:2}"; }
key() { od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'; }
mac() { on "$1" cat /sys/class/net/eth0/address; }

ip link add links type bridge
ip link set links up
for ((i = 0; i <= hosts; i++)); do
	ip netns add "link$i"
	ip link add "links$i" type veth peer name eth0 netns "link$i"
	ip link set "links$i" master links up
	on "$i" ip link set lo up
	on "$i" ip link set eth0 addrgenmode none
	on "$i" ip link set eth0 up
done

echo "# $(uname -r)"

# ranks INTERFACE VARIABLE... runs Allgathers, a rank a host.
ranks() {
	local rank pids=()
	for ((rank = hosts - 1; rank >= 0; rank--)); do
		on "$rank" env -u MCAST_TEST_RDMA RANK="$rank" WORLD_SIZE="$hosts" MASTER_ADDR="$network.1" MASTER_PORT=29500 MCAST_IFACE="$1" "${@:2}" \
			bin/mcast bench allgather --bytes 1K,64K,1M --iters 5 --warmup 1 &
		pids+=($!)
	done
	wait "${pids[@]}"
}

# associate N has hosts take frames under new keys, and then send so.
associate() {
	local i j theirs keys=()
	for ((i = 0; i <= hosts; i++)); do keys[i]=$(key); done
	for ((i = 0; i <= hosts; i++)); do
		for ((j = 0; j <= hosts; j++)); do
			[ "$j" != "$i" ] || continue
			theirs=${keys[j]}
			if [ "$i" = "$hosts" ] || [ "$j" = "$hosts" ]; then theirs=$(key); fi # the last host is a stranger
			on "$i" ip macsec add macsec0 rx port 1 address "$(mac "$j")" sa "$1" pn 1 on key "0$1" "$theirs"
		done
	done
	for ((i = 0; i <= hosts; i++)); do
		on "$i" ip macsec add macsec0 tx sa "$1" pn 1 on key "0$1" "${keys[i]}"
		on "$i" ip link set macsec0 type macsec encodingsa "$1"
	done
}

echo "# MACsec"
network=10.9.2
for ((i = 0; i <= hosts; i++)); do
	on "$i" ip link add link eth0 macsec0 type macsec port 1 cipher gcm-aes-256 encrypt on replay on window 128
	for ((j = 0; j <= hosts; j++)); do
		[ "$j" = "$i" ] || on "$i" ip macsec add macsec0 rx port 1 address "$(mac "$j")"
	done
	on "$i" ip addr add "$network.$((i + 1))/24" dev macsec0
	on "$i" ip link set macsec0 up
done
associate 0
on 0 ip -o link show macsec0
ranks macsec0
echo "# MACsec: the stranger"
if on "$hosts" ping -c 3 -W 1 "$network.1"; then exit 1; fi
on 0 ip -s macsec show macsec0
echo "# MACsec: new keys"
associate 1
ranks macsec0
for ((i = 0; i <= hosts; i++)); do on "$i" ip link del macsec0; done

if command -v wpa_supplicant >/dev/null; then
	echo "# MACsec: two hosts, keys by wpa_supplicant"
	ip link set links type bridge group_fwd_mask 8 # 01:80:c2:00:00:03, which a bridge keeps to the link otherwise
	cat >"$folder/mka" <<-X
		eapol_version=3
		ap_scan=0
		network={
			key_mgmt=NONE
			eapol_flags=0
			macsec_policy=1
			macsec_replay_protect=1
			macsec_replay_window=128
			mka_cak=$(key | cut -c 1-32)
			mka_ckn=$(key)
		}
	X
	for i in 0 1; do on "$i" wpa_supplicant -B -P "$folder/$i.pid" -i eth0 -D macsec_linux -c "$folder/mka" >"$folder/said"; done
	for i in 0 1; do
		for _ in {1..100}; do
			[ "$(on "$i" ip macsec show 2>/dev/null | grep -c 'PN .* state on')" -lt 2 ] || break
			sleep 0.3
		done
		on "$i" ip addr add "$network.$((i + 1))/24" dev macsec0
	done
	on 0 ip macsec show
	hosts=2 ranks macsec0
fi

echo "# WireGuard"
network=10.9.3
for ((i = 0; i < hosts; i++)); do
	(umask 077 && wg genkey >"$folder/$i")
	on "$i" ip addr add "10.9.1.$((i + 1))/24" dev eth0
	on "$i" ip link add wg0 type wireguard
	on "$i" wg set wg0 private-key "$folder/$i" listen-port 51820
	on "$i" ip addr add "$network.$((i + 1))/24" dev wg0
done
for ((i = 0; i < hosts; i++)); do
	for ((j = 0; j < hosts; j++)); do
		[ "$j" = "$i" ] ||
			on "$i" wg set wg0 peer "$(wg pubkey <"$folder/$j")" endpoint "10.9.1.$((j + 1)):51820" allowed-ips "$network.$((j + 1))/32"
	done
	on "$i" ip link set wg0 up
done
on 0 ip -o link show wg0
echo "# WireGuard: as it is"
ranks wg0 MCAST_JOIN_TIMEOUT=20s || echo "# refused"
echo "# WireGuard: with the flag multicast"
for ((i = 0; i < hosts; i++)); do on "$i" ip link set wg0 multicast on; done
ranks wg0
echo "# WireGuard: with MCAST_MULTICAST=off as well"
ranks wg0 MCAST_MULTICAST=off
on 0 wg show wg0 transfer
echo "# WireGuard: two hosts, of which each sends the other what is multicast"
for ((i = 0; i < 2; i++)); do
	on "$i" wg set wg0 peer "$(wg pubkey <"$folder/$((1 - i))")" allowed-ips "$network.$((2 - i))/32,239.192.0.0/14"
done
hosts=2 ranks wg0
