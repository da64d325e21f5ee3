/* What the adapters of net and CollNet share. */
#ifndef ABI_ADAPT_H
#define ABI_ADAPT_H

#include "abi.h"

/* Properties hold this in each byte before a plugin fills them in. */
enum { PROPS_POISON = 0x5a };

void props_from_v8(struct abi_props_v12 *to, const struct abi_props_v8 *p, int dev);
void props_from_v9(struct abi_props_v12 *to, const struct abi_props_v9 *p);
void props_from_v11(struct abi_props_v12 *to, const struct abi_props_v11 *p);

#endif
