package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// cacheKeyLength is the number of hexadecimal digits of the hash in the name of a cache entry. 64 bits are enough for a
// few entries.
const cacheKeyLength = 16

// goBuildFlags returns the flags of go build for a heavy binary.
func goBuildFlags(name, module string) ([]string, error) {
	stamp := ""
	if name == KubernetesBinary || name == KubeletBinary {
		version, err := readKubernetesVersion(filepath.Join(module, "go.mod"))
		if err != nil {
			return nil, err
		}
		stamp = version.versionFlags()
	}
	return []string{"-trimpath", "-ldflags", strings.TrimSpace("-s -w " + stamp)}, nil
}

type kubernetesVersion struct{ gitVersion, major, minor string }

// readKubernetesVersion reads the version of Kubernetes from a go.mod.
func readKubernetesVersion(goMod string) (kubernetesVersion, error) {
	text, err := os.ReadFile(goMod)
	if err != nil {
		return kubernetesVersion{}, fmt.Errorf("read version of Kubernetes: %w", err)
	}
	found := regexp.MustCompile(`(?m)^\s*(?:require\s+)?k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`).FindSubmatch(text)
	if found == nil {
		return kubernetesVersion{}, fmt.Errorf("read version of Kubernetes: %s requires no k8s.io/kubernetes", goMod)
	}
	return kubernetesVersion{string(found[1]), string(found[2]), string(found[3])}, nil
}

// versionFlags returns the linker flags that make the Kubernetes components report their version. Without the linker
// flags, the components report "v0.0.0-master+$Format:%H$", which clients cannot parse as a server's version.
func (v kubernetesVersion) versionFlags() string {
	const variables = "k8s.io/component-base/version."
	return fmt.Sprintf(
		"-X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s",
		variables,
		v.gitVersion,
		v.major,
		v.minor,
	)
}

// goEnvironment returns the additional environment variables of the go command that builds a heavy binary.
func goEnvironment(name string) []string {
	if name == KubeletBinary {
		return []string{"CGO_ENABLED=0"} // the kubelet runs in the node's image, whose C library may differ
	}
	return nil
}

// cacheKey returns the key of a binary in the cache: a hash of the toolchain, the flags and the sources.
func cacheKey(ctx context.Context, module string, flags, environment []string) (string, error) {
	toolchain, err := toolchainVersion(ctx, module, environment)
	if err != nil {
		return "", err
	}
	return hashModule(os.DirFS(module), toolchain, flags)
}

// toolchainVersion returns the version of the go command that builds the module. The module's go.mod may require
// another toolchain than the default.
func toolchainVersion(ctx context.Context, module string, environment []string) (string, error) {
	command := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED")
	command.Dir, command.Env = module, append(os.Environ(), environment...)
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its version in %s: %w", module, err)
	}
	return string(out), nil
}

// hashModule hashes every file of the module that may be part of the binary: all files except tests, documents and
// hidden files. hashModule does not load packages, so the hash also covers a few files that are not part of the binary.
func hashModule(module fs.FS, toolchain string, flags []string) (string, error) {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "toolchain %q flags %q\n", toolchain, flags)
	err := fs.WalkDir(module, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if path != "." && strings.HasPrefix(name, ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md") {
			return nil
		}
		return hashFile(sum, module, path)
	})
	if err != nil {
		return "", fmt.Errorf("hash sources: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:cacheKeyLength], nil
}

// hashFile adds the name, the length and the content of one file to the hash, so that two different trees never write
// the same bytes.
func hashFile(sum io.Writer, module fs.FS, path string) error {
	text, err := fs.ReadFile(module, path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(sum, "file %q %d\n%s", path, len(text), text)
	return err
}
