// Package observers finds Prometheus, Alertmanager and their tools for the local stack and for tests. The programs come
// from Debian packages that are unpacked into the build cache. The packages are not installed, because the installation
// needs root and would start the servers. Package observers starts no server.
package observers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"millwright/devstack/build"
	"millwright/devstack/lab/debian"
)

// The names of the programs.
const (
	Prometheus   = "prometheus"
	Promtool     = "promtool" // checks rules and configurations of Prometheus
	Alertmanager = "alertmanager"
	Amtool       = "amtool" // checks configurations of Alertmanager
)

//go:embed run.sh
var runScript string

// debianPackages are the packages of Prometheus and Alertmanager: 30 MB to download, 140 MB unpacked.
var debianPackages = []string{"prometheus", "prometheus-alertmanager"}

// ProgramPath returns the path of a program. The first call downloads the packages, which takes some seconds.
// ProgramPath fails if this machine is not Debian or the packages cannot be downloaded.
func ProgramPath(ctx context.Context, name string, output io.Writer) (string, error) {
	release, err := os.ReadFile("/etc/debian_version")
	if err != nil {
		return "", fmt.Errorf("this is no Debian: %w", err)
	}
	recipe := strings.Join(append(debianPackages, string(release), runtime.GOARCH, runScript), "\n")
	dir, err := build.CachedFolder(
		ctx,
		"observers",
		recipe,
		output,
		func(dir string) error { return unpackPrograms(ctx, dir, output) },
	)
	if err != nil {
		return "", fmt.Errorf("unpack Prometheus and Alertmanager: %w", err)
	}
	return filepath.Join(dir, "bin", name), nil
}

// unpackPrograms unpacks the packages, and makes the folder bin with all programs by name.
func unpackPrograms(ctx context.Context, dir string, output io.Writer) error {
	_, _ = fmt.Fprintf(output, "unpacking Debian's %s: some seconds, once\n", strings.Join(debianPackages, " and "))
	if err := debian.UnpackPackages(ctx, dir, output, debianPackages...); err != nil {
		return err
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(bin, Alertmanager), []byte(runScript), 0o755),
		os.WriteFile(filepath.Join(bin, Amtool), []byte(runScript), 0o755),
		os.Symlink("../usr/bin/prometheus", filepath.Join(bin, Prometheus)),
		os.Symlink("../usr/bin/promtool", filepath.Join(bin, Promtool)),
	)
}
