package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// UnpackPackages downloads packages of this machine's Debian release and unpacks them into the folder dir.
// UnpackPackages neither downloads dependencies nor runs the packages' scripts, so it is only for programs that need no
// other package.
func UnpackPackages(ctx context.Context, dir string, output io.Writer, packages ...string) error {
	work, err := os.MkdirTemp("", "millwright-packages-")
	if err != nil {
		return fmt.Errorf("make a folder for packages: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	download := func() error { // apt-get downloads into its working directory
		return runApt(ctx, output, append([]string{"env", "--chdir=" + work, "apt-get", "-q", "download"}, packages...)...)
	}
	if err := download(); err != nil { // package lists may be missing or may name a version that the mirror has removed
		if failed := updatePackageLists(ctx, output); failed != nil {
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
		if err := RunProgram(ctx, output, nil, "dpkg-deb", "--extract", file, dir); err != nil {
			return err
		}
	}
	return nil
}
