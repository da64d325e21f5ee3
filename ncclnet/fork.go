package main

/*
#include "fork.h"
*/
import "C"

import "github.com/torch-mcast/torch-mcast/internal/transport/sys"

func init() {
	sys.OnSocket = func(fd int) { C.mcast_close_in_child(C.int(fd)) }
}
