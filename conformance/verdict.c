/* What a check does when it holds and when it does not. */
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "board.h"

#define RULE(id, name, level, why) [id] = { name, level, why },
const struct rule_text rules[RULES] = {
#include "rules_net.h"
#include "rules_coll.h"
};
#undef RULE

enum rule under(enum rule rule)
{
	enum rule was = lane->rule;

	lane->rule = rule;
	atomic_store(&self->board->checked[rule], 1);
	return was;
}

enum rule polling(enum rule rule)
{
	enum rule was = lane->polling;

	lane->polling = rule;
	if (rule != RULES)
		atomic_store(&self->board->checked[rule], 1);
	return was;
}

void board_fail(struct board *b, enum rule rule, int rank, bool ended, const char *text)
{
	int at = atomic_fetch_add(&b->failures, 1);

	if (at >= FAILURES)
		return;
	b->failure[at].rule = rule;
	b->failure[at].rank = rank;
	b->failure[at].ended = ended;
	snprintf(b->failure[at].text, TEXT_BYTES, "%s", text);
}

static void fail(const char *file, int line, const char *text)
{
	char whole[TEXT_BYTES];
	const char *base = strrchr(file, '/');

	snprintf(whole, sizeof(whole), "%s (%s:%d)", text, base ? base + 1 : file, line);
	board_fail(self->board, lane->rule, self->rank, false, whole);
	if (rules[lane->rule].level == SHOULD)
		return;
	atomic_store(&self->board->place[self->rank].state, FAILED);
	atomic_store(&self->board->stop, 1);
	_exit(1);
}

void verdict_fail(const char *file, int line, const char *fmt, ...)
{
	char text[TEXT_BYTES - 60];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fail(file, line, text);
}

const char *result_name(int result)
{
	static const char *const names[] = {
		"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
		"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress",
		"ncclTimeout",
	};

	if (result < 0 || result >= (int)(sizeof(names) / sizeof(names[0])))
		return "no ncclResult_t";
	return names[result];
}

/* Of "net_isend(&r->net, ...)", the function. */
static int name_length(const char *call) { return (int)strcspn(call, "("); }

void verdict_ok(const char *file, int line, const char *call, int result)
{
	if (result != ABI_SUCCESS)
		verdict_fail(file, line, "expected success of %.*s, got %d (%s)", name_length(call), call, result,
			result_name(result));
}

void verdict_refused(const char *file, int line, const char *call, int result)
{
	if (result == ABI_SUCCESS)
		verdict_fail(file, line, "expected an error of %.*s, got success", name_length(call), call);
}

void not_offered(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	if (atomic_exchange(&self->board->declined, 1) == 0)
		vsnprintf(self->board->declined_text, TEXT_BYTES, fmt, args);
	va_end(args);
	atomic_store(&self->board->place[self->rank].state, STOPPED);
	atomic_store(&self->board->stop, 1);
	_exit(0);
}

void note(const char *fmt, ...)
{
	va_list args;

	if (self->rank != 0)
		return;
	va_start(args, fmt);
	vsnprintf(self->board->note, TEXT_BYTES, fmt, args);
	va_end(args);
}
