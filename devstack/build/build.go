// Package build finds the binaries that the local stack needs, and builds those that are older than their sources. The devstack
// command and the integration tests call it. It starts nothing and downloads only what the go command downloads.
//
// There are two kinds of binaries. The heavy ones (Kubernetes, Temporal) are in nested modules and take minutes to build: they
// are kept in a cache outside the clone, so that a second clone or a CI run builds nothing twice (Heavy). Our own ones are
// built by the root module in seconds, into <repo>/bin (Products).
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The heavy binaries.
const (
	Kubernetes = "kubernetes" // etcd, API server, controllers, scheduler, kubectl and KWOK in one multi-call binary
	Temporal   = "temporal"   // Temporal's server and UI
)

// HeavyNames returns the names of all heavy binaries.
func HeavyNames() []string { return []string{Kubernetes, Temporal} }

// describe names a heavy binary in progress messages.
func describe(name string) string {
	switch name {
	case Kubernetes:
		return "etcd, kube-apiserver, controller-manager, scheduler, kubectl and KWOK as one binary"
	case Temporal:
		return "Temporal's server and UI as one binary"
	}
	return name
}

// Heavy returns the path of the named heavy binary of the clone at repo. If the cache has none for the present sources and
// toolchain it builds one, which takes minutes, and reports on progress. Several processes may call it at once: one builds, the
// others wait for it. A second call takes milliseconds.
func Heavy(ctx context.Context, repo, name string, progress io.Writer) (string, error) {
	if !slices.Contains(HeavyNames(), name) {
		return "", fmt.Errorf("build %s: no such binary: have %v", name, HeavyNames())
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	module := filepath.Join(repo, "devstack", name)
	flags, err := linkerFlags(name, module)
	if err != nil {
		return "", err
	}
	key, err := sourceKey(ctx, module, flags)
	if err != nil {
		return "", fmt.Errorf("compute cache key of %s: %w", name, err)
	}
	entry := filepath.Join(cache, name+"-"+key)
	if path := filepath.Join(entry, name); use(path) {
		return path, nil
	}
	unlock, err := lock(ctx, filepath.Join(cache, name+".lock"), func() {
		_, _ = fmt.Fprintf(progress, "another process builds %s: waiting for it\n", name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(entry, name)
	if use(path) { // built while this process waited for the lock
		return path, nil
	}
	if err := compileInto(ctx, entry, name, module, flags, progress); err != nil {
		return "", err
	}
	if err := prune(cache, name, entry); err != nil {
		return "", err
	}
	return path, nil
}

// compileInto builds the module into the directory entry, which appears complete or not at all. The caller holds the lock of
// this name, so an existing temporary directory was left by a build that was killed.
func compileInto(ctx context.Context, entry, name, module string, flags []string, progress io.Writer) error {
	temporary := filepath.Join(filepath.Dir(entry), "."+name+".building")
	if err := os.RemoveAll(temporary); err != nil {
		return fmt.Errorf("remove an unfinished build of %s: %w", name, err)
	}
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return fmt.Errorf("make room for %s: %w", name, err)
	}
	_, _ = fmt.Fprintf(progress, "building %s (%s): many packages, five minutes or so on two cores, once; then cached in %s\n",
		name, describe(name), entry)
	began := time.Now()
	arguments := slices.Concat([]string{"build", "-v", "-o", filepath.Join(temporary, name)}, flags, []string{"."})
	if err := compile(ctx, module, name, arguments, progress); err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	if err := os.Rename(temporary, entry); err != nil {
		return fmt.Errorf("put %s into the cache: %w", name, err)
	}
	_, _ = fmt.Fprintf(progress, "built %s in %s\n", name, time.Since(began).Round(time.Second))
	return nil
}

// use reports whether the cached binary exists, and marks its entry as used now, so that prune removes others first.
func use(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Dir(path), now, now) // fails in a read-only cache, without harm
	return true
}
