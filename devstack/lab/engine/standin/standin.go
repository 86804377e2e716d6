// Package standin makes images that stand in for official ones where no registry can be reached, and gives them their
// names: golang, postgres, and those of Temporal. Each has what our Dockerfiles and docker-compose.yml use of the
// official one. The compiler and Temporal's programs are the real ones; PostgreSQL is that of Debian.
package standin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"millwright/devstack/lab/engine"
)

// image is the recipe of an image.
type image struct {
	name    string
	changes []string // what a Dockerfile would say besides the files: ENV, USER and so on
	fill    func(*archive) error
}

// load makes the image in the engine.
func (i image) load(ctx context.Context, e *engine.Engine) error {
	reader, writer := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		a := newArchive(writer)
		err := i.fill(a)
		if err == nil {
			err = a.close()
		}
		writer.CloseWithError(err) // nil: the end of the file
		filled <- err
	}()
	arguments := []string{"import"}
	for _, change := range i.changes {
		arguments = append(arguments, "--change", change)
	}
	_, err := e.Docker(ctx, reader, append(arguments, "-", i.name)...)
	_ = reader.CloseWithError(err) // docker may end before it has read everything
	if err = errors.Join(err, <-filled); err != nil {
		return fmt.Errorf("make image %s: %w", i.name, err)
	}
	return nil
}

// loadAll makes images one after the other.
func loadAll(ctx context.Context, e *engine.Engine, images ...image) error {
	for _, i := range images {
		if err := i.load(ctx, e); err != nil {
			return err
		}
	}
	return nil
}
