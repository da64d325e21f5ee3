// Package doctor judges hosts and jobs, and reports faults: each with the reason why it matters here, and the command
// that mends it.
//
// Diagnose makes Findings of the Facts of a host. DiagnoseJob compares the Facts of the hosts of a job, and judges the
// paths between them by a Matrix of measurements. Both are pure, so each finding has a test that needs no host to be
// broken. Report and JobReport show them.
//
// Package examine collects the Facts, and package survey the Matrix. They judge nothing.
package doctor
