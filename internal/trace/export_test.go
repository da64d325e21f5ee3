package trace

// Name is name.
var Name = name

// PutNew is putNew.
var PutNew = putNew
