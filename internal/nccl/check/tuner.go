package check

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// need is what CollNet wants to be faster than NCCL's rings.
type need int

const (
	aSwitch    need = iota // a switch answers; with one GPU a node, on two communicators of the same ranks
	registered             // NCCL gives the user's buffers to the plugin as they are
	whole                  // all of an operation's windows are in flight at once
	twoNodes               // that, on two nodes of several GPUs
)

// tunerRules are those of ncclnet/tuner_rule.c, which a test holds them to.
var tunerRules = []struct {
	collective string
	need       need
	from       int // bytes in total
}{
	{reduceScatter, aSwitch, 8 << 20},
	{reduceScatter, registered, 4 << 20},
	{allgather, aSwitch, 8 << 20},
	{allgather, registered, 4 << 20},
	{allgather, whole, 8 << 20},
	{reduceScatter, twoNodes, 8 << 20},
}

// leastNodes is LEAST_NODES of tuner_rule.c: on two of one GPU a ring sends each byte once, too.
const leastNodes = 3

const (
	allgather     = "Allgather"
	reduceScatter = "Reduce-Scatter"
)

// asksForWindows is the version of the tuner by which NCCL asks how large windows are to be.
const asksForWindows = 6

// collectives says whether Allgather and Reduce-Scatter go through CollNet, if nothing stands in the way.
func (c *checker) collectives(ctx context.Context) {
	s, err := config.Load(c.lookup, nil)
	if err != nil {
		return // said already
	}
	has := map[need]bool{
		aSwitch:    c.switchAnswers(ctx, s.Switches()),
		registered: s.GPUMemory != "host",
		whole:      c.Meet != nil && c.Meet.Tuner >= asksForWindows,
	}
	several := c.Topology.GPUs > 1
	has[twoNodes] = has[whole] && several && c.Topology.Nodes == 2
	if c.Topology.Nodes < leastNodes {
		has[aSwitch], has[registered], has[whole] = false, false, has[whole] && several
	}
	switched := "from %d bytes in total, with the switch, on two communicators of the same ranks"
	if several {
		switched = "from %d bytes in total, with the switch"
	}
	c.Collectives = []Collective{
		collective(allgather, "MCAST_TUNER_ALLGATHER", s.TunerAllgather, has, switched),
		collective(reduceScatter, "MCAST_TUNER_REDUCE_SCATTER", s.TunerReduceScatter, has, switched),
	}
}

// collective says whether one goes through CollNet. from is as set, below 0: as the rules say. switched says from
// which size with a switch.
func collective(name, variable string, from int, has map[need]bool, switched string) Collective {
	switch {
	case from == 0:
		return Collective{Name: name, Why: variable + "=0: never by CollNet"}
	case from > 0:
		return Collective{
			Name: name, CollNet: true, From: from,
			Why: fmt.Sprintf("by CollNet from %d bytes in total, as %s says", from, variable),
		}
	}
	for _, r := range tunerRules {
		if r.collective != name || !has[r.need] {
			continue
		}
		why := map[need]string{
			aSwitch:    switched,
			registered: "from %d bytes in total, where buffers are registered with NCCL",
			twoNodes: "from %d bytes in total to as many as NCCL has in flight at once: two nodes of several GPUs need no " +
				"switch",
			whole: "from %d bytes in total to as many as NCCL has in flight at once, channels x NCCL_BUFFSIZE",
		}[r.need]
		return Collective{Name: name, CollNet: true, From: r.from, Why: "by CollNet " + fmt.Sprintf(why, r.from)}
	}
	return Collective{Name: name, Why: "as NCCL chooses, which is faster on links that are the limit: CollNet wins on " +
		"three nodes and more with a switch (MCAST_SWITCH) or registered buffers, and on two of several GPUs where NCCL is " +
		"2.30 or later; " + variable + "=4M takes it all the same"}
}

// switchAnswers reports whether there are aggregation nodes and all answer.
func (c *checker) switchAnswers(ctx context.Context, addresses []string) bool {
	answer := len(addresses) > 0
	for _, address := range addresses {
		err := reach(ctx, address)
		switch {
		case err == nil:
			c.good("MCAST_SWITCH: %s answers", address)
			continue
		case c.Topology.GPUs > 1:
			c.fault(Finding{Set: "MCAST_SWITCH=", Do: "or start one: mcast switch"},
				"MCAST_SWITCH: %v; with several GPUs a node CollNet's connect fails then", err)
		default:
			c.note(Finding{Do: "mcast switch starts one"}, "MCAST_SWITCH: %v", err)
		}
		answer = false
	}
	return answer
}

// reach connects to an aggregation node.
func reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// verdict puts the findings together.
func (c *checker) verdict() {
	if f := c.firstFault(); f != nil {
		c.Reason = f.Says
		for i := range c.Collectives {
			c.Collectives[i] = Collective{Name: c.Collectives[i].Name, Why: "not by CollNet"}
		}
		return
	}
	var by, otherwise []string
	for _, one := range c.Collectives {
		if one.CollNet {
			by = append(by, one.Name)
		} else {
			otherwise = append(otherwise, one.Name)
		}
	}
	c.Used = len(by) > 0
	switch {
	case !c.Used:
		c.Reason = "its network is loaded, but neither Allgather nor Reduce-Scatter goes through CollNet"
	case len(otherwise) > 0:
		c.Reason = fmt.Sprintf("%s by CollNet, %s as NCCL chooses", by[0], otherwise[0])
	default:
		c.Reason = strings.Join(by, " and ") + " by CollNet"
	}
}
