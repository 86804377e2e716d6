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

// debianSuite is the Debian release with Incus 6.0 (long-term support) and containerd 1.7.
const debianSuite = "trixie"

// serverPackages are the Debian packages of the server: incusd, dnsmasq for the instances' DHCP, and btrfs tools for
// the storage pool.
var serverPackages = []string{"incus-base", "incus-client", "dnsmasq-base", "btrfs-progs"}

// nodePackages are the Debian packages of a node. busybox is the node's init and DHCP client: trixie's systemd does not
// start with cgroup v1. socat reads the user data.
var nodePackages = []string{
	"containerd",
	"runc",
	"containernetworking-plugins",
	"busybox-static",
	"iproute2",
	"mount",
	"socat",
}

// excludedFilePatterns are patterns of package files that are not installed.
var excludedFilePatterns = []string{
	"/usr/bin/containerd-shim",
	"/usr/bin/containerd-shim-runc-v1",
	"/usr/bin/containerd-stress",
}

func rootFilesystem(variant string, packages []string) debian.RootFilesystem {
	return debian.RootFilesystem{
		Suite:                debianSuite,
		Variant:              variant,
		Packages:             packages,
		ExcludedFilePatterns: excludedFilePatterns,
	}
}

// nodeFilesFS has the repository's own files for the node image: scripts and configuration.
//
//go:embed node
var nodeFilesFS embed.FS

// workloadFolder is the folder of the program in both pod images.
const workloadFolder = "devstack/lab/incus/workload"

// nodeImage is an image file that incusd can import. key is unique for each recipe of the image.
type nodeImage struct{ path, recipeKey string }

// ensureServerRootAndNodeImage returns the path of the server's root folder and the node image, and makes both if the
// cache lacks them.
func (o Options) ensureServerRootAndNodeImage(ctx context.Context) (root string, image nodeImage, err error) {
	if err := CheckSupport(); err != nil {
		return "", nodeImage{}, err
	}
	if o.Repo, err = build.FindRepo(o.Repo); err != nil {
		return "", nodeImage{}, err
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if root, err = o.buildServerRoot(ctx); err != nil {
		return "", nodeImage{}, fmt.Errorf("make the root folder of incusd: %w", err)
	}
	if image, err = o.buildNodeImage(ctx); err != nil {
		return "", nodeImage{}, fmt.Errorf("make the image of nodes: %w", err)
	}
	return root, image, nil
}

func (o Options) buildServerRoot(ctx context.Context) (string, error) {
	packages := rootFilesystem("apt", serverPackages)
	dir, err := build.CachedFolder(
		ctx,
		"incus-root",
		strings.Join(packages.MmdebstrapArguments(), "\n"),
		o.Output,
		func(dir string) error {
			return packages.Make(ctx, filepath.Join(dir, "root"), o.Output)
		},
	)
	return filepath.Join(dir, "root"), err
}

// buildNodeImage makes the node image in Incus' unified format: a tar archive of metadata.yaml and the folder rootfs.
func (o Options) buildNodeImage(ctx context.Context) (nodeImage, error) {
	kubelet, err := build.HeavyBinaryPath(ctx, o.Repo, build.KubeletBinary, o.Output)
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
		rootFilesystem("essential", nodePackages).MmdebstrapArguments(),
		files,
		program,
		kubelet,
		runtime.Version(),
	)
	dir, err := build.CachedFolder(ctx, "incus-node", recipe, o.Output, func(dir string) error {
		return o.writeNodeImageArchive(ctx, dir, kubelet, files)
	})
	if err != nil {
		return nodeImage{}, err
	}
	return nodeImage{path: filepath.Join(dir, "node.tar"), recipeKey: filepath.Base(dir)}, nil
}

// writeNodeImageArchive makes the archive node.tar of the node image in dir.
func (o Options) writeNodeImageArchive(ctx context.Context, dir, kubelet string, files map[string]string) error {
	work := filepath.Join(dir, "work")
	root := filepath.Join(work, "rootfs")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	if err := rootFilesystem("essential", nodePackages).Make(ctx, root, o.Output); err != nil {
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
	if err := debian.RunProgram(
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
		writeOCIImage(filepath.Join(library, "images", "pause.tar"), pauseImage, binary, "/pause"),
		writeOCIImage(filepath.Join(library, "images", "workload.tar"), WorkloadImage, binary, "/workload"),
		os.Symlink("/usr/bin/busybox", filepath.Join(root, "usr", "sbin", "init")),
		os.Symlink("/usr/lib/node/inittab", filepath.Join(root, "etc", "inittab")),
		os.WriteFile(filepath.Join(root, "etc", "machine-id"), nil, 0o644),  // the first boot generates the machine ID
		os.WriteFile(filepath.Join(root, "etc", "resolv.conf"), nil, 0o644), // DHCP provides the DNS servers
		os.WriteFile(filepath.Join(work, "metadata.yaml"), []byte(nodeImageMetadata()), 0o644),
	)
	if err != nil {
		return err
	}
	if err := debian.RunProgram(
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
	if err := debian.RunProgram(
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

// nodeImageMetadata returns the text of the node image's metadata.yaml. Incus expects the kernel's name of the
// architecture, such as x86_64.
func nodeImageMetadata() string {
	architecture := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return "architecture: " + architecture + "\ncreation_date: 1\nproperties:\n  description: Debian " + debianSuite +
		" with containerd and kubelet\n"
}

// nodeFiles returns the text of each embedded file of the node image by file name.
func nodeFiles() (map[string]string, error) {
	entries, err := fs.ReadDir(nodeFilesFS, "node")
	if err != nil {
		return nil, fmt.Errorf("read the files of nodes: %w", err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		text, err := nodeFilesFS.ReadFile("node/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the files of nodes: %w", err)
		}
		files[entry.Name()] = string(text)
	}
	return files, nil
}

// blobDigest returns the SHA-256 digest of a blob in hexadecimal, which is the blob's file name in an OCI image.
func blobDigest(blob []byte) string {
	sum := sha256.Sum256(blob)
	return hex.EncodeToString(sum[:])
}
