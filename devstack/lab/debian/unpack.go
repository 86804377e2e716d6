package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Unpack downloads packages of this machine's release and unpacks them into the folder dir, without the packages that
// they depend on: it is for programs that need only what each machine has. It runs no script of a package.
func Unpack(ctx context.Context, dir string, output io.Writer, packages ...string) error {
	work, err := os.MkdirTemp("", "millwright-packages-")
	if err != nil {
		return fmt.Errorf("make a folder for packages: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	download := func() error { // apt-get writes to its working directory
		return runApt(ctx, output, append([]string{"env", "--chdir=" + work, "apt-get", "-q", "download"}, packages...)...)
	}
	if err := download(); err != nil { // perhaps there are no lists of packages, or they name a version that is gone
		if failed := updateLists(ctx, output); failed != nil {
			return errors.Join(err, failed)
		}
		if err := download(); err != nil {
			return err
		}
	}
	found, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(found) != len(packages) {
		return fmt.Errorf("download %q: found %d files", packages, len(found))
	}
	for _, file := range found {
		if err := Run(ctx, output, nil, "dpkg-deb", "--extract", file, dir); err != nil {
			return err
		}
	}
	return nil
}
