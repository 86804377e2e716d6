package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image is an image of a release. Its content is that of deploy/image/Dockerfile or Dockerfile.provider.
type image struct {
	name     string
	module   string   // its folder; empty: the root module
	packages []string // what is built: its programs are at the root of the image
	program  string   // name of the only program; empty: each has the name of its package
}

func images() []image {
	return []image{
		{
			name:     "millwright",
			packages: []string{"./" + worker, "./" + bridge, "./starter/" + millwright, "./deploy/image/probe"},
		},
		{name: "millwright-provider-incus", module: "provider/incus", packages: []string{"./worker"}, program: "provider"},
		{
			name:     "millwright-provider-libvirt",
			module:   "examples/provider-libvirt",
			packages: []string{"./worker"},
			program:  "provider",
		},
	}
}

// user is the user and group with which the programs of an image run, as in the Dockerfiles.
const user = "65532:65532"

// writeImages writes each image as one OCI archive: an index with an image for each architecture of linux.
func (r *release) writeImages(context.Context) error {
	for _, i := range images() {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, p := range r.platforms {
			if p.system != "linux" {
				continue
			}
			one, err := r.image(i, p)
			if err != nil {
				return fmt.Errorf("image %s for %s: %w", i.name, p, err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{
				Platform: &v1.Platform{OS: p.system, Architecture: p.architecture},
			}})
		}
		if err := r.writeArchive(i, index); err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
	}
	return nil
}

// image returns an image for one platform.
func (r *release) image(i image, p platform) (v1.Image, error) {
	entries, err := os.ReadDir(r.folderOf(i, p))
	if err != nil {
		return nil, err
	}
	var programs []file
	for _, e := range entries {
		programs = append(programs, file{name: e.Name(), mode: 0o755, from: filepath.Join(r.folderOf(i, p), e.Name())})
	}
	certificates := []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: authorities()},
	}
	one := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for n, files := range [][]file{certificates, programs} {
		path := filepath.Join(r.bin, fmt.Sprintf("%s_%s_%d.tar", i.name, p.architecture, n))
		if err := create(path, func(to io.Writer) error { return r.archive(to, files) }); err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if one, err = mutate.Append(one, mutate.Addendum{
			Layer:     layer,
			MediaType: types.OCILayer,
			History:   v1.History{Created: v1.Time{Time: r.when}, CreatedBy: "make release"},
		}); err != nil {
			return nil, err
		}
	}
	config, err := one.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.system, p.architecture, v1.Time{Time: r.when}
	config.Config = v1.Config{
		User:       user,
		WorkingDir: "/",
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    i.name,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(one, config)
}

// authorities returns the certificates of Mozilla's list as PEM. The file that the Dockerfiles copy has the same list.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
	}
	return text.Bytes()
}

// writeArchive writes the OCI layout with an index as an archive.
func (r *release) writeArchive(i image, index v1.ImageIndex) error {
	folder := filepath.Join(r.bin, i.name+".oci")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          i.name + ":" + r.version,
	})); err != nil {
		return err
	}
	var files []file
	err = filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			files = append(files, file{name: name + "/", mode: 0o755})
		} else {
			files = append(files, file{name: name, mode: 0o644, from: path})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return create(filepath.Join(r.made, i.name+"_"+r.version+".oci.tar"), func(to io.Writer) error {
		return r.archive(to, files)
	})
}
