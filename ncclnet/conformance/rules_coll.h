/* RULE(id, name, level, why): what NCCL asks of CollNet and of a tuner. */
RULE(COLL_PROPERTIES, "coll.properties", MUST,
	"NCCL joins the CollNet device and the net device by name; with two names CollNet is off, without a word.")
