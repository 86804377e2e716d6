package ec2test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// The paths of the HTTP API, one for each method of API.
const (
	PathRunInstances       = "/run-instances"
	pathDescribeInstances  = "/describe-instances"
	pathTerminateInstances = "/terminate-instances"
	pathSetUpNetwork       = "/modify-network-interface"
)

// remoteMessage is the body of every request and every answer.
type remoteMessage struct {
	Instances []Instance
	Filter    Filter
	Token     string // token of a page of DescribeInstances
	ID        string
	Ready     bool
}

// Handler returns the HTTP handler that serves the cloud to Clients in other processes.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, do func(remoteMessage) (remoteMessage, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var asked remoteMessage
			err := json.NewDecoder(r.Body).Decode(&asked)
			if err == nil {
				asked, err = do(asked)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_ = json.NewEncoder(w).Encode(asked) // on an error, the client has closed the connection
		})
	}
	handle(PathRunInstances, func(m remoteMessage) (remoteMessage, error) {
		if len(m.Instances) != 1 {
			return remoteMessage{}, errors.New("one instance at a time")
		}
		made, err := c.RunInstances(m.Instances[0])
		return remoteMessage{Instances: []Instance{made}}, err
	})
	handle(pathDescribeInstances, func(m remoteMessage) (remoteMessage, error) {
		page, next, err := c.DescribeInstances(m.Filter, m.Token)
		return remoteMessage{Instances: page, Token: next}, err
	})
	handle(
		pathTerminateInstances,
		func(m remoteMessage) (remoteMessage, error) { return remoteMessage{}, c.TerminateInstance(m.ID) },
	)
	handle(pathSetUpNetwork, func(m remoteMessage) (remoteMessage, error) {
		ready, err := c.SetUpNetwork(m.ID)
		return remoteMessage{Ready: ready}, err
	})
	return mux
}

// Client sends requests to a Cloud in another process.
type Client struct{ URL string }

var _ API = Client{}

func (c Client) postMessage(path string, m remoteMessage) (answer remoteMessage, err error) {
	body, err := json.Marshal(m)
	if err != nil {
		return answer, err
	}
	response, err := http.Post(c.URL+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%s: HTTP %d", path, response.StatusCode)
	}
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

// RunInstances implements API.
func (c Client) RunInstances(i Instance) (Instance, error) {
	answer, err := c.postMessage(PathRunInstances, remoteMessage{Instances: []Instance{i}})
	if err == nil && len(answer.Instances) != 1 {
		err = fmt.Errorf("%s: %d instances instead of one", PathRunInstances, len(answer.Instances))
	}
	if err != nil {
		return Instance{}, err
	}
	return answer.Instances[0], nil
}

// DescribeInstances implements API.
func (c Client) DescribeInstances(filter Filter, token string) (page []Instance, next string, err error) {
	answer, err := c.postMessage(pathDescribeInstances, remoteMessage{Filter: filter, Token: token})
	return answer.Instances, answer.Token, err
}

// TerminateInstance implements API.
func (c Client) TerminateInstance(id string) error {
	_, err := c.postMessage(pathTerminateInstances, remoteMessage{ID: id})
	return err
}

// SetUpNetwork implements API.
func (c Client) SetUpNetwork(id string) (ready bool, err error) {
	answer, err := c.postMessage(pathSetUpNetwork, remoteMessage{ID: id})
	return answer.Ready, err
}
