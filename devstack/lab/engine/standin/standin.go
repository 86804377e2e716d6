// Package standin makes images that stand in for official ones where no registry can be reached, and gives them their
// names: golang, postgres, and those of Temporal. Each image has what our Dockerfiles and docker-compose.yml use of the
// official image. The compiler and Temporal's programs are the real ones; PostgreSQL comes from Debian.
package standin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"millwright/devstack/lab/engine"
)

// imageRecipe is the recipe of an image.
type imageRecipe struct {
	name    string
	changes []string // instructions of a Dockerfile that add no file, such as ENV and USER
	fill    func(*archive) error
}

// load makes the image in the engine.
func (i imageRecipe) load(ctx context.Context, e *engine.Engine) error {
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
func loadAll(ctx context.Context, e *engine.Engine, images ...imageRecipe) error {
	for _, i := range images {
		if err := i.load(ctx, e); err != nil {
			return err
		}
	}
	return nil
}
