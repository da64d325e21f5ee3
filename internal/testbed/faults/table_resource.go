package faults

// Rows about what a host runs out of.
var resourceRows []Row
