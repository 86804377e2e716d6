// Package build finds the binaries of the local stack, and builds a binary if no build of its current sources exists.
// The devstack command and the integration tests call this package. Package build starts no component, and downloads
// only what the go command downloads.
//
// There are two kinds of binaries. The heavy binaries (Kubernetes, Temporal) are in nested modules and take minutes to
// build. HeavyBinaryPath keeps its binaries in a cache outside the clone, so that a second clone or a CI run builds
// nothing twice. Products builds Millwright's own binaries from the root module in seconds, into <repo>/bin.
package build

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"
)

// The heavy binaries.
const (
	KubernetesBinary = "kubernetes" // etcd, API server, controllers, scheduler, kubectl and KWOK in one multi-call binary
	TemporalBinary   = "temporal"   // Temporal's server and UI
	KubeletBinary    = "kubelet"    // only for real nodes
	MCMBinary        = "mcm"        // a released machine-controller-manager, only for the takeover test
)

// RequiredHeavyBinaryNames returns the names of the heavy binaries that every stack needs: all except KubeletBinary and
// MCMBinary.
func RequiredHeavyBinaryNames() []string { return []string{KubernetesBinary, TemporalBinary} }

// describeBinary returns the description of a heavy binary in progress messages; any other name is returned unchanged.
func describeBinary(name string) string {
	switch name {
	case KubernetesBinary:
		return "etcd, kube-apiserver, controller-manager, scheduler, kubectl and KWOK as one binary"
	case TemporalBinary:
		return "Temporal's server and UI as one binary"
	case KubeletBinary:
		return "Kubernetes' kubelet, for real nodes"
	case MCMBinary:
		return "machine-controller-manager, for the test of a takeover"
	}
	return name
}

// HeavyBinaryPath returns the path of the named heavy binary of the clone at repo. If the cache has no binary of the
// current sources and toolchain, HeavyBinaryPath builds the binary, which takes minutes, and reports progress. Several
// processes may call HeavyBinaryPath at once: one process builds, and the other processes wait. A second call takes
// milliseconds.
func HeavyBinaryPath(ctx context.Context, repo, name string, progress io.Writer) (string, error) {
	if all := append(RequiredHeavyBinaryNames(), KubeletBinary, MCMBinary); !slices.Contains(all, name) {
		return "", fmt.Errorf("build %s: no such binary: have %v", name, all)
	}
	module := filepath.Join(repo, "devstack", name)
	flags, err := goBuildFlags(name, module)
	if err != nil {
		return "", err
	}
	key, err := cacheKey(ctx, module, flags, goEnvironment(name))
	if err != nil {
		return "", fmt.Errorf("compute cache key of %s: %w", name, err)
	}
	entry, err := findOrBuildEntry(ctx, name, key, name, progress, func(entry string) error {
		return compileIntoCache(ctx, entry, name, module, flags, progress)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(entry, name), nil
}

// compileIntoCache builds the module into the folder entry. The folder either does not exist or is complete. The caller
// must have locked the name.
func compileIntoCache(ctx context.Context, entry, name, module string, flags []string, progress io.Writer) error {
	return fillEntry(entry, name, func(dir string) error {
		_, _ = fmt.Fprintf(progress, "building %s (%s), once; then it is cached in %s\n", name, describeBinary(name), entry)
		began := time.Now()
		arguments := slices.Concat([]string{"build", "-v", "-o", filepath.Join(dir, name)}, flags, []string{"."})
		if err := runGoCommand(ctx, module, name, goEnvironment(name), arguments, progress); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(progress, "built %s in %s\n", name, time.Since(began).Round(time.Second))
		return nil
	})
}
