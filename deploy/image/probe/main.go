// Command probe sends one HTTP request to a URL and exits with 0 if the response is a success. The health check of
// Compose runs a command inside the container, and Millwright's image has neither a shell nor an HTTP client.
// Kubernetes sends its health checks itself and does not need the probe.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// requestTimeout is the timeout of the HTTP request. requestTimeout is shorter than the timeout of the health checks in
// docker-compose.yml, so that the probe can still print that the process does not answer.
const requestTimeout = 2 * time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: probe URL")
		os.Exit(2)
	}
	if err := probeURL(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func probeURL(url string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
