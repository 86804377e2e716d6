package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"millwright/provider/virtual"
)

// Client is a client of the admin API. A Client is safe for concurrent use.
type Client struct {
	address    string
	httpClient *http.Client
}

// NewClient returns a client of the cloud at the address "host:port" or "http://host:port".
func NewClient(address string) *Client {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return &Client{address: strings.TrimSuffix(address, "/"), httpClient: &http.Client{}}
}

// Behaviour returns the cloud's behaviour.
func (c *Client) Behaviour(ctx context.Context) (Behaviour, error) {
	return fetchAnswer[Behaviour](ctx, c, http.MethodGet, PathBehaviour, nil)
}

// SetBehaviour replaces the cloud's behaviour.
func (c *Client) SetBehaviour(ctx context.Context, b Behaviour) error {
	return c.sendRequest(ctx, http.MethodPut, PathBehaviour, b, nil)
}

// ChangeBehaviour reads the behaviour, edits it with change, and writes it back. Two concurrent calls may undo each
// other's edits.
func (c *Client) ChangeBehaviour(ctx context.Context, change func(*Behaviour)) error {
	b, err := c.Behaviour(ctx)
	if err != nil {
		return err
	}
	change(&b)
	return c.SetBehaviour(ctx, b)
}

// AddFault adds a fault, which makes calls fail.
func (c *Client) AddFault(ctx context.Context, f Fault) error {
	return c.sendRequest(ctx, http.MethodPost, PathFaults, f, nil)
}

// Faults returns the faults that are still in effect.
func (c *Client) Faults(ctx context.Context) ([]Fault, error) {
	return fetchAnswer[[]Fault](ctx, c, http.MethodGet, PathFaults, nil)
}

// ClearFaults removes every fault.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.sendRequest(ctx, http.MethodDelete, PathFaults, nil, nil)
}

// ClearFaultsOfOperation removes the faults of one operation.
func (c *Client) ClearFaultsOfOperation(ctx context.Context, op Operation) error {
	query := url.Values{"operation": {string(op)}}.Encode()
	return c.sendRequest(ctx, http.MethodDelete, PathFaults+"?"+query, nil, nil)
}

// MakeInstanceVanish makes an instance vanish. If no instance or more than one instance has the machine name,
// MakeInstanceVanish returns an error.
func (c *Client) MakeInstanceVanish(ctx context.Context, v VanishRequest) error {
	return c.sendRequest(ctx, http.MethodPost, PathVanish, v, nil)
}

// ResyncNodes registers missing Nodes of live instances again, and removes the Nodes of instances that are gone. Call
// ResyncNodes after an API server was restored to an older state. In a real cluster, restarted kubelets and a
// cloud-controller-manager do the same.
func (c *Client) ResyncNodes(ctx context.Context) error {
	return c.sendRequest(ctx, http.MethodPost, PathResyncNodes, nil, nil)
}

// CreateByHand creates an instance regardless of faults, quotas and client tokens, for example a foreign instance, an
// orphan or a duplicate.
func (c *Client) CreateByHand(ctx context.Context, request virtual.CreateRequest) (virtual.Instance, error) {
	return fetchAnswer[virtual.Instance](ctx, c, http.MethodPost, PathCreateByHand, request)
}

// Instances returns every live instance, sorted by number.
func (c *Client) Instances(ctx context.Context) ([]Instance, error) {
	return fetchAnswer[[]Instance](ctx, c, http.MethodGet, PathInstances, nil)
}

// UserData returns an instance's user data.
func (c *Client) UserData(ctx context.Context, id string) ([]byte, error) {
	return fetchAnswer[[]byte](ctx, c, http.MethodGet, PathUserData+"?"+url.Values{"id": {id}}.Encode(), nil)
}

// Stats returns the counters.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return fetchAnswer[Stats](ctx, c, http.MethodGet, PathStats, nil)
}

// ResetCloud restores the cloud's initial state.
func (c *Client) ResetCloud(ctx context.Context) error {
	return c.sendRequest(ctx, http.MethodPost, PathReset, nil, nil)
}

// fetchAnswer sends a request and decodes the answer as a T.
func fetchAnswer[T any](ctx context.Context, c *Client, method, path string, in any) (T, error) {
	var out T
	err := c.sendRequest(ctx, method, path, in, &out)
	return out, err
}

func (c *Client) sendRequest(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.address+path, body)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	answer, err := c.httpClient.Do(request)
	if err != nil {
		return fmt.Errorf("call virtualcloud: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusMultipleChoices {
		var told virtual.ErrorAnswer
		if err := json.NewDecoder(answer.Body).Decode(&told); err != nil {
			return fmt.Errorf("%s %s: HTTP %d", method, path, answer.StatusCode)
		}
		return fmt.Errorf("%s %s: %s (%s)", method, path, told.Message, told.Code)
	}
	if out == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}
