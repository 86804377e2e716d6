// The first process of the instances of tests: it sleeps, takes over orphaned processes and ends with a signal.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGPWR, syscall.SIGINT)
	<-end
}
