package p2p

// #include "p2p.h"
import "C"

import (
	"sync"
	"time"
)

// watch looks at the comms of this process that send, while there are any.
var watch struct {
	sync.Mutex
	running bool
	warn    func(string) // of the newest comm that has one
}

// watchSenders is called after a comm was opened.
func watchSenders(warn func(string)) {
	watch.Lock()
	defer watch.Unlock()
	if warn != nil {
		watch.warn = warn
	}
	if watch.running {
		return
	}
	watch.running = true
	go func() {
		for pause := look(); pause > 0; pause = look() {
			time.Sleep(pause)
		}
	}()
}

// look returns after how long to look again; 0: the watch has ended.
func look() time.Duration {
	var lost [256]C.char
	watch.Lock()
	pause := time.Duration(C.p2p_watch(&lost[0], C.size_t(len(lost)))) * time.Millisecond
	watch.running = pause > 0
	warn := watch.warn
	watch.Unlock()
	if lost[0] != 0 && warn != nil {
		warn("p2p: " + C.GoString(&lost[0]))
	}
	return pause
}
