package trace

// Name is name.
var Name = name
