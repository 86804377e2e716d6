// Command sleeper is process 1 of the tests' instances: it waits for a signal and exits.
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
