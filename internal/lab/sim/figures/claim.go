package figures

import (
	"fmt"
	"math"
)

// Tolerance is how far a figure may be from the paper's and still agree with it, as a share of the paper's. It is the
// same for all figures with no other bounds in their row, so that no bound is fitted to a result.
const Tolerance = 0.1

// A Rule decides from values whether a claim holds. The zero value decides nothing.
type Rule struct {
	least, most float64
	text        string // as the documents have it
}

// near holds for figures within Tolerance of the paper's.
func near(paper float64) Rule {
	return Rule{paper * (1 - Tolerance), paper * (1 + Tolerance), fmt.Sprintf("%g, give or take a tenth", paper)}
}

// between holds from one of the paper's figures to another, with the same Tolerance.
func between(least, most float64) Rule {
	return Rule{least * (1 - Tolerance), most * (1 + Tolerance),
		fmt.Sprintf("%g to %g, give or take a tenth", least, most)}
}

// within holds from one value to another.
func within(least, most float64) Rule { return Rule{least, most, fmt.Sprintf("%g to %g", least, most)} }

func atLeast(v float64) Rule { return Rule{v, math.Inf(1), fmt.Sprintf("at least %g", v)} }
func atMost(v float64) Rule  { return Rule{math.Inf(-1), v, fmt.Sprintf("at most %g", v)} }

// holds tells whether all values are where the rule wants them.
func (r Rule) holds(values []float64) bool {
	for _, v := range values {
		if !(v >= r.least && v <= r.most) { // NaN holds nowhere
			return false
		}
	}
	return len(values) > 0
}

// A Verdict is what became of a claim.
type Verdict string

// Agrees and Differs are of a paper's figure, Kept and Missed of a bound that is ours. All four come
// from a rule that can fail. Arithmetic follows from the paper's own numbers, or from constants alone;
// Beside has nothing of a paper to be held to. Neither counts as an agreement.
const (
	Agrees     Verdict = "agrees"
	Differs    Verdict = "differs"
	Kept       Verdict = "kept"
	Missed     Verdict = "missed"
	Arithmetic Verdict = "arithmetic"
	Beside     Verdict = "beside"
)

// Claim is what a paper says beside what came out here.
type Claim struct {
	Figure  string    `json:"figure"`
	What    string    `json:"claim"`
	Paper   string    `json:"paper"`
	Ours    string    `json:"ours"`
	Values  []float64 `json:"values,omitempty"` // that the rule is about
	Rule    string    `json:"rule,omitempty"`
	Verdict Verdict   `json:"verdict"`
}

// Markdown is the claim as a row of a table in docs/project/reproduction.md.
func (c *Claim) Markdown() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", c.What, c.Paper, c.Ours, c.Rule, c.Verdict)
}

// claimed is a claim that may get a rule.
type claimed struct {
	s *sheet
	i int
}

// claim puts what a paper says beside what came out. Without a rule it has nothing to be held to.
func (s *sheet) claim(what, paper, ours string, args ...any) claimed {
	s.claims = append(s.claims,
		Claim{Figure: s.name, What: what, Paper: paper, Ours: fmt.Sprintf(ours, args...), Verdict: Beside})
	return claimed{s, len(s.claims) - 1}
}

// agrees holds the values to a figure of the paper.
func (c claimed) agrees(r Rule, values ...float64) { c.judge(r, values, Agrees, Differs) }

// kept holds the values to a bound or a law of ours.
func (c claimed) kept(r Rule, values ...float64) { c.judge(r, values, Kept, Missed) }

// arithmetic says that nothing which was run could make the claim false.
func (c claimed) arithmetic() { c.s.claims[c.i].Verdict = Arithmetic }

func (c claimed) judge(r Rule, values []float64, good, bad Verdict) {
	claim := &c.s.claims[c.i]
	claim.Values, claim.Rule, claim.Verdict = values, r.text, bad
	if r.holds(values) {
		claim.Verdict = good
	}
}
