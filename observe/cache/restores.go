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

// Restores notices that an API server was restored to a former state. A watch that continues from a later version than
// the API server has shows no change until the API server has reached that version, and what the restore changed it
// never shows. A restore interrupts each watch, so it is enough to ask for the API server's version when a watch
// continues after an interruption. The process has to end then: its next start fills the caches anew. Safe for
// concurrent use.
type Restores struct {
	found chan error

	mu    sync.Mutex
	ended map[string]time.Time // when the last watch of a URL ended
}

// NewRestores returns a Restores that has noticed nothing.
func NewRestores() *Restores {
	return &Restores{found: make(chan error, 1), ended: map[string]time.Time{}}
}

// AwaitRestore returns an error once a restore has been noticed, and nil when ctx ends. Only one caller gets the error.
func (r *Restores) AwaitRestore(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.found:
		return err
	}
}

// notice tells of a restore, unless one is known already.
func (r *Restores) notice(resource, version string) {
	select {
	case r.found <- fmt.Errorf("the API server was restored to a former state: it is older than version %s in the cache of %s", version, resource):
	default:
	}
}

// Watched returns a copy of a config whose clients check each watch of a whole resource that continues from a version
// after an interruption. Such a watch opens only if the check could be made; each costs one request for one object. A
// nil config stays nil.
func (r *Restores) Watched(config *rest.Config) *rest.Config {
	if config == nil {
		return nil
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return checked{next, r} })
	return config
}

// checked compares the version of a watch with that of the API server.
type checked struct {
	next     http.RoundTripper
	restores *Restores
}

// RoundTrip implements http.RoundTripper.
func (c checked) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	version := continued(request.URL.Query())
	if err != nil || response.StatusCode != http.StatusOK || version == "" {
		return response, err
	}
	resource := request.URL.Host + request.URL.Path
	response.Body = watchBody{response.Body, func() { c.restores.end(resource) }}
	if c.restores.renewed(resource) {
		return response, nil
	}
	newest, err := c.newest(request)
	if err != nil {
		_ = response.Body.Close() // an error is ignored: nothing of the body is used
		return nil, fmt.Errorf("read the version of %s: %w", path.Base(request.URL.Path), err)
	}
	if Newer(version, newest) {
		c.restores.notice(path.Base(request.URL.Path), version)
	}
	return response, nil
}

// end records that a watch ended.
func (r *Restores) end(resource string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[resource] = time.Now()
}

// renewed reports whether the previous watch ended at most linkRenewed ago. The API server ends each watch after some
// minutes, and the next one follows at once; a restart of the API server takes longer.
func (r *Restores) renewed(resource string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.ended[resource]
	return known && time.Since(last) <= linkRenewed
}

// watchBody tells when a watch ends.
type watchBody struct {
	io.ReadCloser

	end func()
}

// Read implements io.Reader.
func (b watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

// continued returns the version from which a watch of a whole resource continues or, if the watch fills a cache anew,
// the version that the cache had before; empty for another request, and for a watch that begins with all objects. A
// cache that is filled anew matters too: the caches are filled at different times, and until all are, a decision would
// be made from objects of two stores. A watch with a field selector needs no check: the pods of a drain fill no cache
// that outlives an interruption, and where Leases or the control plane are watched, whole resources are watched as
// well.
func continued(query url.Values) string {
	version := query.Get("resourceVersion")
	if query.Get("watch") == "" || query.Get("fieldSelector") != "" || version == "0" {
		return ""
	}
	return version
}

// newest returns the version of the store, which is that of a list with one object.
func (c checked) newest(watch *http.Request) (string, error) {
	ctx, cancel := context.WithTimeout(watch.Context(), versionRequest)
	defer cancel()
	request := watch.Clone(ctx)
	request.URL.RawQuery = url.Values{"limit": {"1"}}.Encode()
	request.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	response, err := c.next.RoundTrip(request)
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
