// Package doctor looks at what a host offers the library, tries it, and says what is wrong: what it
// is, why it matters here, and the command that mends it.
//
// It has three parts, which meet in two plain types. Gather collects Facts: it asks the kernel and
// judges nothing. Diagnose makes Findings of them: it is pure, so each finding has a test that
// needs no host to be broken. Report shows both. What several hosts of a job are to be asked, and
// who hears whom, is DiagnoseJob's.
//
// Nothing needs root. What cannot be seen without is a note, and no fault.
package doctor
