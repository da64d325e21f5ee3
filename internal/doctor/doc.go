// Package doctor examines and tries the parts of a host that the library uses, and reports faults: each with the
// reason why it matters here, and the command that mends it.
//
// It has three parts, which meet in two plain types. Gather collects Facts: it asks the kernel and
// judges nothing. Diagnose makes Findings of them: it is pure, so each finding has a test that
// needs no host to be broken. Report shows both. DiagnoseJob compares the hosts of a job, and judges the paths between
// them.
//
// Nothing needs root. A fact that only root can see is a note where it is missing, and no fault.
package doctor
