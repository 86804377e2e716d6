package standin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"millwright/devstack/build"
	"millwright/devstack/lab/debian"
	"millwright/devstack/lab/engine"
)

// moduleProxyAddress is the address of the module proxy in the engine's network namespace. The proxy serves this
// machine's downloaded modules and its build cache.
const moduleProxyAddress = engine.BridgeAddress + ":8081"

// buildCacheArchivePath is the build cache's path on the proxy. No module has the path build-cache.tar.
const buildCacheArchivePath = "build-cache.tar"

// maxBuildCacheBytes is the maximum size of a build cache in bytes; a larger cache is deleted. maxBuildCacheBytes is
// twice the size of a cache with all packages of Millwright's images.
const maxBuildCacheBytes = 3 << 30

// BuildTarget lists the packages that the build of an image compiles. PrepareGoToolchain compiles these packages in
// advance.
type BuildTarget struct {
	ModuleFolder string   // folder of the Go module
	Packages     []string // main packages
}

// GoToolchain describes the Go toolchain and caches of this machine, for ImportGolangImage.
type GoToolchain struct {
	version         string // Go version, for instance go1.26.8
	toolchainFolder string // folder of the toolchain
	moduleCache     string // folder of downloaded modules
	buildCache      string // build cache with the programs' compiled packages
}

// PrepareGoToolchain compiles the packages of the programs with the flags of Millwright's Dockerfiles into a separate
// build cache. PrepareGoToolchain takes some minutes if the cache is empty, and some seconds if packages have changed.
// PrepareGoToolchain also downloads all modules of the programs. PrepareGoToolchain needs no root privileges.
func PrepareGoToolchain(ctx context.Context, output io.Writer, programs ...BuildTarget) (GoToolchain, error) {
	var c GoToolchain
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return c, fmt.Errorf("ask go for its folders: %w", err)
	}
	answers := strings.Split(string(out), "\n")
	if len(answers) < 3 {
		return c, fmt.Errorf("ask go for its folders: it answers %q", out)
	}
	c.version, c.toolchainFolder, c.moduleCache = answers[0], answers[1], answers[2]
	dir, err := build.CachedFolder(ctx, "image-packages", c.version, output, func(string) error {
		_, _ = fmt.Fprintln(output, "compiling the packages of the images: three minutes or so on two cores, once")
		return nil
	})
	if err != nil {
		return c, err
	}
	c.buildCache = filepath.Join(dir, "go-build")
	if err := removeOversizedFolder(c.buildCache, maxBuildCacheBytes); err != nil {
		return c, err
	}
	for _, program := range programs {
		for _, arguments := range [][]string{
			{"mod", "download"},
			// `go list -export` compiles without linking. The flags must be the flags of the Dockerfiles, because
			// otherwise the build in the container could not use the cache.
			append([]string{"list", "-export", "-f", "{{\"\"}}", "-trimpath", "-buildvcs=false"}, program.Packages...),
		} {
			environment := []string{"CGO_ENABLED=0", "GOCACHE=" + c.buildCache}
			if err := debian.RunProgram(
				ctx,
				output,
				environment,
				"go",
				append([]string{"-C", program.ModuleFolder}, arguments...)...); err != nil {
				return c, fmt.Errorf("compile %v of %s: %w", program.Packages, program.ModuleFolder, err)
			}
		}
	}
	return c, nil
}

// removeOversizedFolder removes a folder that is larger than the allowed number of bytes. The go command itself limits
// only the age of its cache's entries.
func removeOversizedFolder(folder string, allowed int64) error {
	size := int64(0)
	err := filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("measure the build cache: %w", err)
	}
	if size > allowed {
		return os.RemoveAll(folder)
	}
	return nil
}

// ImportGolangImage makes the image name with this machine's toolchain, a shell and CA certificates. Containers of the
// image download modules from a proxy, which serves this machine's modules until ctx ends. ImportGolangImage also fills
// the Dockerfiles' cache mount with compiled packages, so that builds compile few packages again. output receives the
// progress.
func ImportGolangImage(ctx context.Context, e *engine.Engine, name string, c GoToolchain, output io.Writer) error {
	root, err := engine.RootFolder(ctx, output)
	if err != nil {
		return err
	}
	authorities, err := caCertificates(root)
	if err != nil {
		return err
	}
	const home = "/usr/local/go"
	err = imageRecipe{
		name: name,
		instructions: []string{
			"ENV PATH=/go/bin:" + home + "/bin:/usr/bin", "ENV GOPATH=/go", "ENV GOTOOLCHAIN=local", "WORKDIR /go",
			"ENV GOPROXY=http://" + moduleProxyAddress,
		},
		addFiles: func(a *archiveWriter) error {
			return errors.Join(
				a.addShell(root, "tar", "wget"),
				a.addTextFile("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n"), // Dockerfiles mount the cache in /root
				a.addTextFile("/etc/ssl/certs/ca-certificates.crt", 0o644, authorities),
				a.addTree(home, c.toolchainFolder, isUnneededToolchainFile),
			)
		},
	}.importImage(ctx, e)
	if err != nil {
		return err
	}
	if err := c.serveModulesAndBuildCache(ctx, e); err != nil {
		return err
	}
	return seedBuildCache(ctx, e, name)
}

// isUnneededToolchainFile reports whether a file or folder of the toolchain is not needed for builds. Unneeded files
// are tests, documents, and the toolchain's own sources.
func isUnneededToolchainFile(name string) bool {
	switch name {
	case "api", "doc", "misc", "test", filepath.Join("src", "cmd"), filepath.Join("bin", "gofmt"):
		return true
	}
	return filepath.Base(name) == "testdata" || strings.HasSuffix(name, "_test.go")
}

// caCertificates concatenates the CA certificates of the package ca-certificates, as the package's installation script
// does.
func caCertificates(root string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, "usr", "share", "ca-certificates", "mozilla", "*.crt"))
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the certificates of authorities: %w", err)
		}
		all.Write(text)
	}
	return all.String(), nil
}

// serveModulesAndBuildCache serves the downloaded modules as a module proxy, and the build cache as a tar archive,
// until ctx ends.
func (c GoToolchain) serveModulesAndBuildCache(ctx context.Context, e *engine.Engine) error {
	listener, err := e.Listen(moduleProxyAddress)
	if err != nil {
		return fmt.Errorf("serve modules: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join(c.moduleCache, "cache", "download"))))
	mux.HandleFunc("/"+buildCacheArchivePath, func(w http.ResponseWriter, _ *http.Request) {
		a := newArchiveWriter(w)
		if err := errors.Join(a.addTree("/", c.buildCache, nil), a.close()); err != nil {
			panic(http.ErrAbortHandler) // after this panic, the client detects an incomplete archive
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return nil
}

// seedBuildCache copies the build cache into the cache mount that Millwright's Dockerfiles use.
func seedBuildCache(ctx context.Context, e *engine.Engine, name string) error {
	const target = "/root/.cache/go-build"
	dockerfile := "FROM " + name + "\n" +
		"RUN --mount=type=cache,target=" + target + " set -o pipefail && wget -q -O - http://" + moduleProxyAddress + "/" +
		buildCacheArchivePath + " | tar -x -C " + target + "\n"
	if _, err := e.RunDocker(ctx, strings.NewReader(dockerfile), "build", "-"); err != nil {
		return fmt.Errorf("fill the cache of builds: %w", err)
	}
	return nil
}
