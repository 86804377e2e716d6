package cloud

import (
	"net/http"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// registerAdminHandlers registers the handlers of the admin API, which package admin documents.
func (c *Cloud) registerAdminHandlers(mux *http.ServeMux) {
	mux.HandleFunc(
		"GET "+admin.PathBehaviour,
		adminHandler(c, func(*http.Request) (any, error) { return c.Behaviour(), nil }),
	)
	mux.HandleFunc("PUT "+admin.PathBehaviour, adminHandler(c, func(r *http.Request) (any, error) {
		return c.changeBehaviour(r, admin.DefaultBehaviour())
	}))
	mux.HandleFunc("PATCH "+admin.PathBehaviour, adminHandler(c, func(r *http.Request) (any, error) {
		return c.changeBehaviour(r, c.Behaviour())
	}))
	mux.HandleFunc("GET "+admin.PathFaults, adminHandler(c, func(*http.Request) (any, error) { return c.Faults(), nil }))
	mux.HandleFunc("POST "+admin.PathFaults, adminHandler(c, func(r *http.Request) (any, error) {
		var f admin.Fault
		if err := decodeBody(r, &f); err != nil {
			return nil, err
		}
		return c.Faults(), c.AddFault(f)
	}))
	mux.HandleFunc("DELETE "+admin.PathFaults, adminHandler(c, func(r *http.Request) (any, error) {
		if op := r.URL.Query().Get("operation"); op != "" {
			return struct{}{}, c.ClearFaultsOfOperation(admin.Operation(op))
		}
		c.ClearFaults()
		return struct{}{}, nil
	}))
	mux.HandleFunc("POST "+admin.PathVanish, adminHandler(c, func(r *http.Request) (any, error) {
		var v admin.VanishRequest
		if err := decodeBody(r, &v); err != nil {
			return nil, err
		}
		return struct{}{}, c.MakeInstanceVanish(v)
	}))
	mux.HandleFunc(
		"POST "+admin.PathResyncNodes,
		adminHandler(c, func(*http.Request) (any, error) { return struct{}{}, c.ResyncNodes() }),
	)
	mux.HandleFunc("POST "+admin.PathCreateByHand, adminHandler(c, func(r *http.Request) (any, error) {
		var request virtual.CreateRequest
		if err := decodeBody(r, &request); err != nil {
			return nil, err
		}
		return c.CreateByHand(request)
	}))
	mux.HandleFunc(
		"GET "+admin.PathInstances,
		adminHandler(c, func(*http.Request) (any, error) { return c.Instances(), nil }),
	)
	mux.HandleFunc("GET "+admin.PathUserData, adminHandler(c, func(r *http.Request) (any, error) {
		return c.UserData(r.URL.Query().Get("id"))
	}))
	mux.HandleFunc("GET "+admin.PathStats, adminHandler(c, func(*http.Request) (any, error) { return c.Stats(), nil }))
	mux.HandleFunc(
		"POST "+admin.PathReset,
		adminHandler(c, func(*http.Request) (any, error) { return struct{}{}, c.Reset() }),
	)
}

// changeBehaviour overwrites the fields of b that the request contains, and sets b as the cloud's behaviour.
func (c *Cloud) changeBehaviour(r *http.Request, b admin.Behaviour) (any, error) {
	if err := decodeBody(r, &b); err != nil {
		return nil, err
	}
	if err := c.SetBehaviour(b); err != nil {
		return nil, err
	}
	return c.Behaviour(), nil
}

// adminHandler returns the HTTP handler of one call of the admin API.
func adminHandler(c *Cloud, call func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		told, err := call(r)
		if err != nil {
			c.writeRefusal(w, r, err)
			return
		}
		writeAnswer(w, http.StatusOK, told)
	}
}
