package network

// Busy returns until when a host's workers are busy with what has arrived: a
// driver that has packets in its queue does not take silence for a loss.
func (n *Network) Busy(host int) Time { return n.work[host] }
