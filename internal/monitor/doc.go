// Package monitor watches a group and tells of it. It has the counters and facts that users ask for, finds out which
// ranks operations wait for, warns of what makes a group slow, and shows it to other programs: pages and traces.
package monitor
