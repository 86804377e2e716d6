//go:build integration

package rig

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"millwright/devstack/component"
	"millwright/devstack/stack"

	enumspb "go.temporal.io/api/enums/v1"
	"google.golang.org/protobuf/proto"
)

// FindSecretLeaks searches for secrets in all output of Millwright: the histories of all runs, the logs and metrics of
// all processes, the events, and the objects of machine.sapcloud.io. FindSecretLeaks returns the places where it has
// found a secret, and the number of histories that it has searched.
func (r *Rig) FindSecretLeaks(ctx context.Context, secrets ...string) (places []string, histories int, err error) {
	var forms [][]byte
	for _, secret := range secrets {
		forms = append(forms, encodedForms(secret)...)
	}
	look := func(where string, text []byte) {
		for _, form := range forms {
			if bytes.Contains(text, form) {
				places = append(places, where)
				return
			}
		}
	}
	if histories, err = r.forEachHistory(ctx, look); err != nil {
		return nil, 0, err
	}
	if err := r.forEachLog(look); err != nil {
		return nil, 0, err
	}
	if err := r.forEachMetrics(ctx, look); err != nil {
		return nil, 0, err
	}
	const ours = ".machine.sapcloud.io" // Cluster API has kinds with the same names
	objects := []string{
		"events",
		"machines" + ours,
		"machinesets" + ours,
		"machinedeployments" + ours,
		"machineclasses" + ours,
	}
	for _, kind := range objects {
		text, err := r.Stack.RunKubectl(ctx, "get", kind, "--all-namespaces", "-o", "yaml")
		if err != nil {
			return nil, 0, err
		}
		look(kind, text)
	}
	return places, histories, nil
}

// forEachHistory calls look with the visibility record of each run and with each event of the run's history.
// forEachHistory returns the number of runs.
func (r *Rig) forEachHistory(ctx context.Context, look func(where string, text []byte)) (histories int, err error) {
	runs, err := r.listWorkflowRuns(ctx, "")
	if err != nil {
		return 0, err
	}
	for _, w := range runs {
		text, err := proto.Marshal(w) // the visibility record contains memo and search attributes
		if err != nil {
			return 0, fmt.Errorf("encode workflow: %w", err)
		}
		look("workflow "+w.Execution.WorkflowId, text)
		for events := r.Temporal.GetWorkflowHistory(ctx, w.Execution.WorkflowId, w.Execution.RunId, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
			event, err := events.Next()
			if err != nil {
				return 0, fmt.Errorf("read history of %s: %w", w.Execution.WorkflowId, err)
			}
			if text, err = proto.Marshal(event); err != nil {
				return 0, fmt.Errorf("encode event: %w", err)
			}
			look(fmt.Sprintf("history of %s, event %d", w.Execution.WorkflowId, event.EventId), text)
		}
	}
	return len(runs), nil
}

// isMillwrightProcess reports whether a component is a process of Millwright. Such a component is named worker or
// bridge, or has one of these names and a suffix after a hyphen (worker-2, worker-provider).
func isMillwrightProcess(name string) bool {
	kind, _, _ := strings.Cut(name, "-")
	return kind == component.Worker || kind == component.Bridge
}

// forEachMetrics calls look with the metrics of each ready process of Millwright.
func (r *Rig) forEachMetrics(ctx context.Context, look func(where string, text []byte)) error {
	components, err := r.Stack.Status(ctx)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	for _, c := range components {
		if c.State != stack.StateReady || !isMillwrightProcess(c.Name) {
			continue
		}
		text, err := r.readMetrics(ctx, c.Name)
		if err != nil {
			return err
		}
		look("metrics of "+c.Name, text)
	}
	return nil
}

// readMetrics returns the text of the metrics of one of Millwright's processes.
func (r *Rig) readMetrics(ctx context.Context, component string) ([]byte, error) {
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		r.Stack.MetricsURL(component)+"/metrics",
		http.NoBody,
	)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", component, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", component, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", component, err)
	}
	return text, nil
}

// forEachLog calls look with the logs of Millwright's processes, of Temporal and of the virtual cloud.
func (r *Rig) forEachLog(look func(where string, text []byte)) error {
	state, err := r.Stack.State()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	for _, name := range state.Plan.Components {
		if !isMillwrightProcess(name) && name != component.Temporal && name != component.VirtualCloud {
			continue
		}
		text, err := os.ReadFile(r.Stack.LogPath(name))
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		look("log "+filepath.Base(r.Stack.LogPath(name)), text)
	}
	return nil
}

// encodedForms returns the forms that a secret may have in a text: plain, and in base64 at each of the three offsets.
func encodedForms(secret string) [][]byte {
	forms := [][]byte{[]byte(secret)}
	for offset := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, offset), secret...))
		// the first and the last characters depend on the text around the secret
		forms = append(forms, []byte(encoded[4:len(encoded)-4]))
	}
	return forms
}
