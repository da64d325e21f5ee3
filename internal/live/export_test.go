package live

// Own is own.
var Own = own
