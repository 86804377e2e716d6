package cloud

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// maxBodyBytes is the maximum size of a request body, in bytes. EC2 accepts 16 KiB of user data.
const maxBodyBytes = 1 << 20

// Handler returns the handler of the cloud's HTTP API, its admin API and GET /healthz.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("POST "+virtual.PathInstances, c.serveCreate)
	mux.HandleFunc("GET "+virtual.PathInstances, c.serveList)
	mux.HandleFunc("GET "+virtual.PathLookup, c.serveLookup)
	mux.HandleFunc("GET "+virtual.PathLimits, c.serveLimits)
	mux.HandleFunc("POST "+virtual.PathInstances+"/{id}/initialize", c.serveInitialize)
	mux.HandleFunc("DELETE "+virtual.PathInstances+"/{id}", c.serveDelete)
	c.registerAdminHandlers(mux)
	return mux
}

func (c *Cloud) serveCreate(w http.ResponseWriter, r *http.Request) {
	var request virtual.CreateRequest
	if err := decodeBody(r, &request); err != nil {
		c.writeRefusal(w, r, err)
		return
	}
	about := callSubject{machine: request.Tags.MachineName, class: request.Tags.Class}
	c.serveCall(
		w,
		r,
		admin.OperationCreate,
		about,
		func(ctx context.Context) (any, error) { return c.createInstance(ctx, request) },
	)
}

func (c *Cloud) serveList(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	class := query.Get("class")
	c.serveCall(w, r, admin.OperationList, callSubject{class: class}, func(context.Context) (any, error) {
		return c.cutPage(c.listInstances(query.Get("cluster"), class), query.Get("page")), nil
	})
}

func (c *Cloud) serveLookup(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	cluster, uid, id := query.Get("cluster"), query.Get("uid"), query.Get("id")
	c.serveCall(
		w,
		r,
		admin.OperationStatus,
		c.findCallSubject(func(r *instanceRecord) bool { return r.hasID(id) || (uid != "" && r.Tags.MachineUID == uid) }),
		func(context.Context) (any, error) {
			if id != "" {
				return c.cutPage(c.lookupByID(cluster, id), query.Get("page")), nil
			}
			return c.cutPage(c.lookupByUID(cluster, uid, query.Get("machine"), query.Get("class")), query.Get("page")), nil
		},
	)
}

func (c *Cloud) serveLimits(w http.ResponseWriter, r *http.Request) {
	c.serveCall(w, r, admin.OperationLimits, callSubject{}, func(context.Context) (any, error) { return c.Limits(), nil })
}

func (c *Cloud) serveInitialize(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	c.serveCall(w, r, admin.OperationInitialize, c.findCallSubject(func(r *instanceRecord) bool { return r.hasID(id) }),
		func(context.Context) (any, error) { return c.initializeInstance(id) })
}

func (c *Cloud) serveDelete(w http.ResponseWriter, r *http.Request) {
	id, cluster := r.PathValue("id"), r.URL.Query().Get("cluster")
	c.serveCall(w, r, admin.OperationDelete, c.findCallSubject(func(r *instanceRecord) bool { return r.hasID(id) }),
		func(context.Context) (any, error) { return struct{}{}, c.terminateInstance(id, cluster) })
}

// findCallSubject returns the machine and the class of the live instance that a call concerns, for matching faults.
func (c *Cloud) findCallSubject(fits func(*instanceRecord) bool) callSubject {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.callGate.faults) == 0 {
		return callSubject{}
	}
	for _, r := range c.state.liveRecords(time.Now()) {
		if fits(r) {
			return callSubject{machine: r.Tags.MachineName, class: r.Tags.Class}
		}
	}
	return callSubject{}
}

// serveCall handles one call, in this order: credentials, rate limits, faults, hangs, effect, answer.
func (c *Cloud) serveCall(
	w http.ResponseWriter,
	r *http.Request,
	op admin.Operation,
	about callSubject,
	effect func(context.Context) (any, error),
) {
	if err := c.authenticate(r); err != nil {
		c.writeRefusal(w, r, err)
		return
	}
	struck, err := c.admitCall(r.Context(), op, about)
	if err != nil {
		c.writeRefusal(w, r, err)
		return
	}
	answer, err := effect(r.Context())
	if err == nil {
		err = c.waitWhileHanging(r.Context(), op, admin.HangAfterEffect)
	}
	if err == nil && struck != nil {
		err = struck.refusal()
	}
	if err != nil {
		c.writeRefusal(w, r, err)
		return
	}
	writeAnswer(w, http.StatusOK, answer)
}

// authenticate checks the credentials. The cloud never logs credentials, and returns credentials only if
// QuoteCredentials is set.
func (c *Cloud) authenticate(r *http.Request) error {
	token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer || token == "" {
		return provider.Errorf(provider.Unauthenticated, "the request carries no credentials")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, accepted := range c.behaviour.AcceptedTokens {
		if subtle.ConstantTimeCompare([]byte(token), []byte(accepted)) == 1 {
			return nil
		}
	}
	if len(c.behaviour.AcceptedTokens) > 0 {
		return provider.Errorf(provider.Unauthenticated, "the credentials are not valid")
	}
	return nil
}

// writeRefusal answers a call with an error.
func (c *Cloud) writeRefusal(w http.ResponseWriter, r *http.Request, err error) {
	code := provider.CodeOfError(err)
	c.countRefusal(code)
	told := virtual.ErrorAnswer{Code: code.String(), Message: "the cloud failed"}
	if typed, ok := errors.AsType[*provider.Error](err); ok {
		told.Message, told.RetryAfter = typed.Message, virtual.Duration(typed.RetryAfter)
	}
	told.Message += c.quotedCredentials(r)
	if errors.Is(err, errRequestExpired) {
		told.Reason = virtual.ReasonExpired
	}
	if told.RetryAfter > 0 {
		seconds := (time.Duration(told.RetryAfter) + time.Second - 1) / time.Second // Retry-After allows only whole seconds
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	writeAnswer(w, virtual.HTTPStatus(code), told)
}

// quotedCredentials returns the caller's token in the forms that an error response quotes; empty unless
// QuoteCredentials is set.
func (c *Cloud) quotedCredentials(r *http.Request) string {
	c.mu.Lock()
	quotes := c.behaviour.QuoteCredentials
	c.mu.Unlock()
	token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !quotes || !isBearer {
		return ""
	}
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + token))
	return fmt.Sprintf(
		"; request: %s %s?token=%s, Authorization: Basic %s, token %q",
		r.Method,
		r.URL.Path,
		url.QueryEscape(token),
		basic,
		token,
	)
}

func writeAnswer(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // an error means that the client has gone
}

// decodeBody decodes a request's JSON body. An unknown field is an error.
func decodeBody(r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBodyBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		// The decoder's errors contain field names, and never contain user data.
		return provider.Errorf(provider.InvalidArgument, "request: %v", err)
	}
	return nil
}
