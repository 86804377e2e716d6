//go:build integration

package rig

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"millwright/devstack/component"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"
)

// Leaks looks for a secret in everything that Millwright writes down: the histories of all runs, the logs of its processes,
// the events, and the machine objects. It returns where it found it, and how many histories it read.
func (r *Rig) Leaks(ctx context.Context, secret string) (places []string, histories int, err error) {
	look := func(where string, text []byte) {
		for _, form := range disguises(secret) {
			if bytes.Contains(text, form) {
				places = append(places, where)
				return
			}
		}
	}
	var page []byte
	for {
		answer, err := r.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 500, NextPageToken: page})
		if err != nil {
			return nil, 0, fmt.Errorf("list workflows: %w", err)
		}
		for _, w := range answer.Executions {
			histories++
			text, err := proto.Marshal(w) // memo and search attributes
			if err != nil {
				return nil, 0, fmt.Errorf("encode workflow: %w", err)
			}
			look("workflow "+w.Execution.WorkflowId, text)
			for events := r.Temporal.GetWorkflowHistory(ctx, w.Execution.WorkflowId, w.Execution.RunId, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
				event, err := events.Next()
				if err != nil {
					return nil, 0, fmt.Errorf("read history of %s: %w", w.Execution.WorkflowId, err)
				}
				if text, err = proto.Marshal(event); err != nil {
					return nil, 0, fmt.Errorf("encode event: %w", err)
				}
				look(fmt.Sprintf("history of %s, event %d", w.Execution.WorkflowId, event.EventId), text)
			}
		}
		if page = answer.NextPageToken; len(page) == 0 {
			break
		}
	}
	if err := r.eachLog(look); err != nil {
		return nil, 0, err
	}
	objects := []string{"events", "machines", "machinesets", "machinedeployments", "machineclasses"}
	for _, kind := range objects {
		text, err := r.Stack.Kubectl(ctx, "get", kind, "--all-namespaces", "-o", "yaml")
		if err != nil {
			return nil, 0, err
		}
		look(kind, text)
	}
	return places, histories, nil
}

// eachLog calls look with the logs of Millwright's processes and of those that it calls.
func (r *Rig) eachLog(look func(where string, text []byte)) error {
	onDemand := []string{component.SecondWorker, component.SecondBridge, component.ProviderWorker}
	for _, name := range append([]string{component.Worker, component.Bridge, component.Temporal, component.VirtualCloud}, onDemand...) {
		text, err := os.ReadFile(r.Stack.LogPath(name))
		if errors.Is(err, fs.ErrNotExist) && slices.Contains(onDemand, name) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		look("log "+filepath.Base(r.Stack.LogPath(name)), text)
	}
	return nil
}

// disguises returns the forms in which bytes may stand in a text: as they are, and in base64 at each of the three offsets.
func disguises(secret string) [][]byte {
	forms := [][]byte{[]byte(secret)}
	for offset := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, offset), secret...))
		forms = append(forms, []byte(encoded[4:len(encoded)-4])) // the ends depend on what stands beside
	}
	return forms
}
