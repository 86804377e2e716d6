// Package main is the program of both pod images of the nodes. This repository builds the images, because nodes reach
// no registry. Called as "pause" the program is the pause process of a pod. Under any other name, the program is a
// workload: an HTTP server on port 8080 that returns the name of its pod. The workload continues to serve for some time
// after SIGTERM, like a program that completes its open requests.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	linger := flag.Duration("linger", 0, "serve on for this long after SIGTERM")
	address := flag.String("address", ":8080", "where to listen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if filepath.Base(os.Args[0]) == "pause" {
		waitForSignal(ctx)
		return nil
	}
	return serveRequests(ctx, *address, *linger)
}

// waitForSignal waits for SIGTERM or SIGINT. In a pod with a shared process namespace, pause reaps orphaned processes.
func waitForSignal(ctx context.Context) {
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	for {
		select {
		case <-ctx.Done():
			return
		case <-orphans:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

func serveRequests(ctx context.Context, address string, linger time.Duration) error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of the pod: %w", err)
	}
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, name) }),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Printf("%s serves on %s", name, address)
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	log.Printf("%s was told to end: serves for %s more", name, linger)
	time.Sleep(linger)
	if err := server.Close(); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	log.Printf("%s ended", name)
	return nil
}
