package faults

import "slices"

// All is the catalogue.
var All = slices.Concat(processRows, nodeRows, hostRows, linkRows, pathRows, sizeRows, directionRows, flowRows,
	resourceRows, timeRows, netRows, levelRows, unevenRows, heldRows)

// across makes a row for each Over. The row has an ID without its Over, which across puts before
// it.
func across(row func(Over) Row, overs ...Over) []Row {
	var rows []Row
	for _, over := range overs {
		r := row(over)
		r.ID, r.Over = string(over)+r.ID, over
		rows = append(rows, r)
	}
	return rows
}

// among says whether an over is one of some, for rows that differ between overs.
func among(over Over, some ...Over) bool { return slices.Contains(some, over) }
