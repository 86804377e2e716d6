package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// RestoreDetector detects that an API server was restored to a former state. After a restore, the API server has a
// lower resource version than the version from which a watch continues. A watch that continues from a higher version
// shows no change until the API server has reached this version, and never shows the changes that the restore made. A
// restore interrupts each watch, so RestoreDetector reads the API server's version whenever a watch continues after an
// interruption. After a restore, the process has to end: its next start fills the caches again. RestoreDetector is safe
// for concurrent use.
type RestoreDetector struct {
	restoreErrors chan error

	mu            sync.Mutex
	watchEndTimes map[string]time.Time // URL → end of the last watch
}

// NewRestoreDetector returns a RestoreDetector without a detected restore.
func NewRestoreDetector() *RestoreDetector {
	return &RestoreDetector{restoreErrors: make(chan error, 1), watchEndTimes: map[string]time.Time{}}
}

// AwaitRestore returns an error once a restore is detected, and nil when ctx ends. Only one caller gets the error.
func (r *RestoreDetector) AwaitRestore(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.restoreErrors:
		return err
	}
}

// reportRestore sends the error of a detected restore, unless an earlier error is still unread.
func (r *RestoreDetector) reportRestore(resource, version string) {
	select {
	case r.restoreErrors <- fmt.Errorf("the API server was restored to a former state: it is older than version %s in the cache of %s", version, resource):
	default:
	}
}

// ConfigWithRestoreCheck returns a copy of a config. When a client of the copy resumes a watch of a whole resource
// after an interruption, the client first checks whether the API server was restored. If the check fails, the watch
// does not open. Each check costs one request for one object. A nil config stays nil.
func (r *RestoreDetector) ConfigWithRestoreCheck(config *rest.Config) *rest.Config {
	if config == nil {
		return nil
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return restoreChecker{next, r} })
	return config
}

// restoreChecker compares the version of a watch with the version of the API server.
type restoreChecker struct {
	wrappedTransport http.RoundTripper
	detector         *RestoreDetector
}

// RoundTrip implements http.RoundTripper.
func (c restoreChecker) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.wrappedTransport.RoundTrip(request)
	version := watchStartVersion(request.URL.Query())
	if err != nil || response.StatusCode != http.StatusOK || version == "" {
		return response, err
	}
	resource := request.URL.Host + request.URL.Path
	response.Body = watchBody{response.Body, func() { c.detector.recordWatchEnd(resource) }}
	if c.detector.isWatchRenewal(resource) {
		return response, nil
	}
	newest, err := c.readNewestVersion(request)
	if err != nil {
		_ = response.Body.Close() // The error is ignored: nobody reads the body.
		return nil, fmt.Errorf("read the version of %s: %w", path.Base(request.URL.Path), err)
	}
	if IsNewerVersion(version, newest) {
		c.detector.reportRestore(path.Base(request.URL.Path), version)
	}
	return response, nil
}

func (r *RestoreDetector) recordWatchEnd(resource string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchEndTimes[resource] = time.Now()
}

// isWatchRenewal reports whether the previous watch ended at most maxRenewalGap ago. The API server ends each watch
// after some minutes, and the next watch follows at once; a restart of the API server takes longer.
func (r *RestoreDetector) isWatchRenewal(resource string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.watchEndTimes[resource]
	return known && time.Since(last) <= maxRenewalGap
}

// watchBody calls onEnd when a watch ends.
type watchBody struct {
	io.ReadCloser

	onEnd func()
}

// Read implements io.Reader.
func (b watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.onEnd()
	}
	return n, err
}

// watchStartVersion returns the version from which a watch of a whole resource continues. If a watch refills a cache,
// watchStartVersion returns the version that the cache had before. watchStartVersion returns an empty string for other
// requests, and for a watch that begins with all objects. A refill needs the check too: the caches refill at different
// times, and until all caches are refilled, a decision would mix objects from before and after the restore. A watch
// with a field selector needs no check, for two reasons. The cache of a drain's pods does not outlive an interruption.
// Every process that watches Leases or the control plane also watches whole resources.
func watchStartVersion(query url.Values) string {
	version := query.Get("resourceVersion")
	if query.Get("watch") == "" || query.Get("fieldSelector") != "" || version == "0" {
		return ""
	}
	return version
}

// readNewestVersion returns the version of the API server's store, read from a list with one object.
func (c restoreChecker) readNewestVersion(watch *http.Request) (string, error) {
	ctx, cancel := context.WithTimeout(watch.Context(), versionCheckTimeout)
	defer cancel()
	request := watch.Clone(ctx)
	request.URL.RawQuery = url.Values{"limit": {"1"}}.Encode()
	request.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	response, err := c.wrappedTransport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the API server answers %s", response.Status)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	return list.ResourceVersion, nil
}
