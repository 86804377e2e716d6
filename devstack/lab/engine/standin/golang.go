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

// proxyAddress is where containers find the modules and the build cache of this machine, in the engine's network
// namespace.
const proxyAddress = engine.HostAddress + ":8081"

// cacheArchive is the path of the build cache at that address. No module has this path.
const cacheArchive = "build-cache.tar"

// cacheLimit is the size in bytes above which a build cache is deleted: twice the size of one with all packages of our
// images.
const cacheLimit = 3 << 30

// Program says what the build of an image compiles. Prepare compiles the same packages before.
type Program struct {
	Module   string   // folder of the module
	Packages []string // main packages
}

// Compiler is what Golang needs of this machine.
type Compiler struct {
	version string // version of Go, for instance go1.26.8
	root    string // folder of the toolchain
	modules string // folder of downloaded modules
	cache   string // build cache with the packages of the programs
}

// Prepare compiles the packages of programs as our Dockerfiles do, into a build cache of their own: some minutes when
// it is empty, some seconds when packages have changed. It also downloads all modules of the programs. It needs no
// root.
func Prepare(ctx context.Context, output io.Writer, programs ...Program) (Compiler, error) {
	var c Compiler
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return c, fmt.Errorf("ask go for its folders: %w", err)
	}
	answers := strings.Split(string(out), "\n")
	if len(answers) < 3 {
		return c, fmt.Errorf("ask go for its folders: it answers %q", out)
	}
	c.version, c.root, c.modules = answers[0], answers[1], answers[2]
	dir, err := build.Folder(ctx, "image-packages", c.version, output, func(string) error {
		_, _ = fmt.Fprintln(output, "compiling the packages of the images: three minutes or so on two cores, once")
		return nil
	})
	if err != nil {
		return c, err
	}
	c.cache = filepath.Join(dir, "go-build")
	if err := limitFolder(c.cache, cacheLimit); err != nil {
		return c, err
	}
	for _, program := range programs {
		for _, arguments := range [][]string{
			{"mod", "download"},
			// Compiles, and links nothing. With other flags than those of the Dockerfiles the build cache would be of
			// no use.
			append([]string{"list", "-export", "-f", "{{\"\"}}", "-trimpath", "-buildvcs=false"}, program.Packages...),
		} {
			environment := []string{"CGO_ENABLED=0", "GOCACHE=" + c.cache}
			if err := debian.Run(
				ctx,
				output,
				environment,
				"go",
				append([]string{"-C", program.Module}, arguments...)...); err != nil {
				return c, fmt.Errorf("compile %v of %s: %w", program.Packages, program.Module, err)
			}
		}
	}
	return c, nil
}

// limitFolder removes a folder that has more bytes than allowed. The go command itself limits only the age of its
// cache.
func limitFolder(folder string, allowed int64) error {
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

// Golang makes the image with this name: the toolchain of this machine, a shell and the certificates of authorities.
// Its containers get the modules that this machine has downloaded from a proxy, which serves until ctx ends. The cache
// mounts of Dockerfiles have packages that are already compiled: little is compiled again. output receives the
// progress.
func Golang(ctx context.Context, e *engine.Engine, name string, c Compiler, output io.Writer) error {
	root, err := engine.Root(ctx, output)
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
		changes: []string{
			"ENV PATH=/go/bin:" + home + "/bin:/usr/bin", "ENV GOPATH=/go", "ENV GOTOOLCHAIN=local", "WORKDIR /go",
			"ENV GOPROXY=http://" + proxyAddress,
		},
		fill: func(a *archive) error {
			return errors.Join(
				a.addShell(root, "tar", "wget"),
				a.addText("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n"), // root's home has the build cache
				a.addText("/etc/ssl/certs/ca-certificates.crt", 0o644, authorities),
				a.addTree(home, c.root, isUnneeded),
			)
		},
	}.load(ctx, e)
	if err != nil {
		return err
	}
	if err := c.serve(ctx, e); err != nil {
		return err
	}
	return seedBuildCache(ctx, e, name)
}

// isUnneeded says which files of the toolchain no build needs: tests, documents, and the sources of the toolchain
// itself.
func isUnneeded(name string) bool {
	switch name {
	case "api", "doc", "misc", "test", filepath.Join("src", "cmd"), filepath.Join("bin", "gofmt"):
		return true
	}
	return filepath.Base(name) == "testdata" || strings.HasSuffix(name, "_test.go")
}

// caCertificates returns the authorities' certificates of Debian's package, as its installation puts them together.
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

// serve serves downloaded modules in the form of a module proxy, and the build cache as an archive, until ctx ends.
func (c Compiler) serve(ctx context.Context, e *engine.Engine) error {
	listener, err := e.Listen(proxyAddress)
	if err != nil {
		return fmt.Errorf("serve modules: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join(c.modules, "cache", "download"))))
	mux.HandleFunc("/"+cacheArchive, func(w http.ResponseWriter, _ *http.Request) {
		a := newArchive(w)
		if err := errors.Join(a.addTree("/", c.cache, nil), a.close()); err != nil {
			panic(http.ErrAbortHandler) // the client sees that its archive is not complete
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return nil
}

// seedBuildCache copies the build cache into the cache mount that our Dockerfiles use.
func seedBuildCache(ctx context.Context, e *engine.Engine, name string) error {
	const target = "/root/.cache/go-build"
	dockerfile := "FROM " + name + "\n" +
		"RUN --mount=type=cache,target=" + target + " set -o pipefail && wget -q -O - http://" + proxyAddress + "/" +
		cacheArchive + " | tar -x -C " + target + "\n"
	if _, err := e.Docker(ctx, strings.NewReader(dockerfile), "build", "-"); err != nil {
		return fmt.Errorf("fill the cache of builds: %w", err)
	}
	return nil
}
