package incus

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"millwright/devstack/build"
	"millwright/devstack/lab/debian"
)

// suite is the release of Debian that has Incus 6.0, the long-term one, and containerd 1.7.
const suite = "trixie"

// serverPackages are what the server runs from: incusd, dnsmasq for the addresses of instances, and tools of btrfs for
// the pool.
var serverPackages = []string{"incus-base", "incus-client", "dnsmasq-base", "btrfs-progs"}

// nodePackages are what a node runs from. busybox is its init and its DHCP client, since trixie's systemd refuses to
// start with cgroup v1; socat reads the user data.
var nodePackages = []string{
	"containerd",
	"runc",
	"containernetworking-plugins",
	"busybox-static",
	"iproute2",
	"mount",
	"socat",
}

// unneededFiles are patterns of files that are left out of packages.
var unneededFiles = []string{
	"/usr/bin/containerd-shim",
	"/usr/bin/containerd-shim-runc-v1",
	"/usr/bin/containerd-stress",
}

// debianRoot returns the recipe of a root folder.
func debianRoot(variant string, packages []string) debian.Root {
	return debian.Root{Suite: suite, Variant: variant, Packages: packages, Without: unneededFiles}
}

// nodeFolder has the files that this repository adds to the image of nodes: scripts and configuration.
//
//go:embed node
var nodeFolder embed.FS

// workloadFolder is the folder of the program of both images of pods.
const workloadFolder = "devstack/lab/incus/workload"

// nodeImage is a file that incusd can import, and the key that differs for each recipe of the image.
type nodeImage struct{ path, key string }

// build returns the server's root folder and the image.
func (o Options) build(ctx context.Context) (root string, image nodeImage, err error) {
	if err := Supported(); err != nil {
		return "", nodeImage{}, err
	}
	if o.Repo, err = build.FindRepo(o.Repo); err != nil {
		return "", nodeImage{}, err
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if root, err = o.buildRoot(ctx); err != nil {
		return "", nodeImage{}, fmt.Errorf("make the root folder of incusd: %w", err)
	}
	if image, err = o.buildImage(ctx); err != nil {
		return "", nodeImage{}, fmt.Errorf("make the image of nodes: %w", err)
	}
	return root, image, nil
}

func (o Options) buildRoot(ctx context.Context) (string, error) {
	packages := debianRoot("apt", serverPackages)
	dir, err := build.Folder(
		ctx,
		"incus-root",
		strings.Join(packages.Arguments(), "\n"),
		o.Output,
		func(dir string) error {
			return packages.Make(ctx, filepath.Join(dir, "root"), o.Output)
		},
	)
	return filepath.Join(dir, "root"), err
}

// buildImage makes the image in the form that Incus calls unified: a tar archive of metadata.yaml and the folder
// rootfs.
func (o Options) buildImage(ctx context.Context) (nodeImage, error) {
	kubelet, err := build.Heavy(ctx, o.Repo, build.Kubelet, o.Output)
	if err != nil {
		return nodeImage{}, err
	}
	files, err := nodeFiles()
	if err != nil {
		return nodeImage{}, err
	}
	program, err := os.ReadFile(filepath.Join(o.Repo, workloadFolder, "main.go"))
	if err != nil {
		return nodeImage{}, fmt.Errorf("read the workload: %w", err)
	}
	recipe := fmt.Sprintf(
		"%q %q %q %s %s",
		debianRoot("essential", nodePackages).Arguments(),
		files,
		program,
		kubelet,
		runtime.Version(),
	)
	dir, err := build.Folder(ctx, "incus-node", recipe, o.Output, func(dir string) error {
		return o.fillImage(ctx, dir, kubelet, files)
	})
	if err != nil {
		return nodeImage{}, err
	}
	return nodeImage{path: filepath.Join(dir, "node.tar"), key: filepath.Base(dir)}, nil
}

// fillImage makes the image in dir.
func (o Options) fillImage(ctx context.Context, dir, kubelet string, files map[string]string) error {
	work := filepath.Join(dir, "work")
	root := filepath.Join(work, "rootfs")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	if err := debianRoot("essential", nodePackages).Make(ctx, root, o.Output); err != nil {
		return err
	}
	library := filepath.Join(root, "usr", "lib", "node")
	if err := os.MkdirAll(filepath.Join(library, "images"), 0o755); err != nil {
		return err
	}
	for name, text := range files {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(library, name), []byte(text), mode); err != nil {
			return err
		}
	}
	binary := filepath.Join(work, "workload")
	if err := debian.Run(
		ctx,
		o.Output,
		[]string{"CGO_ENABLED=0"},
		"go",
		"build",
		"-C",
		filepath.Join(o.Repo, workloadFolder),
		"-trimpath",
		"-ldflags",
		"-s -w",
		"-o",
		binary,
		".",
	); err != nil {
		return err
	}
	err := errors.Join(
		writeImage(filepath.Join(library, "images", "pause.tar"), pauseImage, binary, "/pause"),
		writeImage(filepath.Join(library, "images", "workload.tar"), WorkloadImage, binary, "/workload"),
		os.Symlink("/usr/bin/busybox", filepath.Join(root, "usr", "sbin", "init")),
		os.Symlink("/usr/lib/node/inittab", filepath.Join(root, "etc", "inittab")),
		os.WriteFile(filepath.Join(root, "etc", "machine-id"), nil, 0o644),  // a node makes its ID at its first boot
		os.WriteFile(filepath.Join(root, "etc", "resolv.conf"), nil, 0o644), // a node gets its DNS servers by DHCP
		os.WriteFile(filepath.Join(work, "metadata.yaml"), []byte(imageMetadata()), 0o644),
	)
	if err != nil {
		return err
	}
	if err := debian.Run(
		ctx,
		o.Output,
		nil,
		"install",
		"-m",
		"0755",
		kubelet,
		filepath.Join(root, "usr", "bin", "kubelet"),
	); err != nil {
		return err
	}
	archive := filepath.Join(dir, "node.tar")
	if err := debian.Run(
		ctx,
		o.Output,
		nil,
		"tar",
		"--numeric-owner",
		"--xattrs",
		"-C",
		work,
		"-cf",
		archive,
		"metadata.yaml",
		"rootfs",
	); err != nil {
		return err
	}
	return os.RemoveAll(work)
}

// imageMetadata returns the file metadata.yaml of the image for Incus. It has the kernel's name of the architecture.
func imageMetadata() string {
	architecture := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return "architecture: " + architecture + "\ncreation_date: 1\nproperties:\n  description: Debian " + suite +
		" with containerd and kubelet\n"
}

// nodeFiles returns the files of the image by name.
func nodeFiles() (map[string]string, error) {
	entries, err := fs.ReadDir(nodeFolder, "node")
	if err != nil {
		return nil, fmt.Errorf("read the files of nodes: %w", err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		text, err := nodeFolder.ReadFile("node/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the files of nodes: %w", err)
		}
		files[entry.Name()] = string(text)
	}
	return files, nil
}

// blobDigest returns the name of a blob in an OCI image.
func blobDigest(blob []byte) string {
	sum := sha256.Sum256(blob)
	return hex.EncodeToString(sum[:])
}
