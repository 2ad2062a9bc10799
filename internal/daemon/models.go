package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"soma/internal/agent/model"
	"soma/internal/agent/model/openai"
	"soma/internal/agent/model/script"
	"soma/internal/agent/price"
	"soma/internal/config"
	"soma/internal/process"
	"soma/wire"
)

// maxProviders bounds the providers that are kept ready; scripts named by file could otherwise pile up.
const maxProviders = 256

// models finds models by name. Keys and variables are read when the daemon starts.
type models struct {
	config    *config.Config
	env       config.Env
	variables []string

	mu   sync.Mutex
	made map[string]process.Model
}

func newModels(c *config.Config, env config.Env) *models {
	return &models{config: c, env: env, variables: c.ProviderVariables(env), made: map[string]process.Model{}}
}

// Find returns a model; the error is a *wire.Error that says what to do.
func (m *models) Find(ctx context.Context, name string) (process.Model, error) {
	found, err := m.config.Resolve(name, m.env)
	if err != nil {
		return process.Model{}, m.refusal(ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.made[found.Name]; ok && found.Type != config.Script {
		return p, nil
	}
	p := process.Model{Vendor: vendor(found), Model: found.Model}
	if p.Provider, err = m.provider(found); err != nil {
		code := wire.Unprocessable
		if found.Type == config.Script {
			code = wire.BadFile
		}
		return process.Model{}, wire.Errorf(code, "cannot use model %s: %v", found.Name, err)
	}
	if len(m.made) >= maxProviders {
		clear(m.made)
	}
	m.made[found.Name] = p
	return p, nil
}

func (m *models) provider(found config.Model) (model.Provider, error) {
	switch found.Type {
	case config.Script:
		return script.Load(found.Model)
	case config.OpenAI:
		key, err := found.Key(m.env)
		if err != nil {
			return nil, err
		}
		return openai.New(openai.Config{BaseURL: found.BaseURL, Key: key.Reveal()})
	}
	return nil, fmt.Errorf("type %s is not known", found.Type)
}

// vendor names who sends the bill. Only the provider's own endpoint has the provider's prices; any other has those that the
// person gave for the model, or unknown ones.
func vendor(m config.Model) string {
	u, err := url.Parse(m.BaseURL)
	switch {
	case m.Prices != nil:
		return pricedPrefix + m.Name
	case m.Type == config.OpenAI && (err != nil || u.Hostname() != "api.openai.com"):
		return u.Host
	}
	return string(m.Type)
}

const pricedPrefix = "model:"

// prices puts the person's own prices before the built-in ones.
func prices(c *config.Config) (*price.Table, error) {
	var b strings.Builder
	for _, m := range c.Models {
		if p := m.Prices; p != nil {
			fmt.Fprintf(&b, "  - {provider: %q, prefix: \"\", valid_from: 2000-01-01, input: %s, cache_read: %s, cache_write: %s, output: %s}\n",
				vendor(m), dollars(p.Input), dollars(p.CacheRead), dollars(p.CacheWrite), dollars(p.Output))
		}
	}
	if b.Len() == 0 {
		return price.Builtin(), nil
	}
	user, err := price.Parse(c.File(), []byte("prices:\n"+b.String()))
	if err != nil {
		return nil, err
	}
	return price.Builtin().Over(user), nil
}

// dollars writes nano-dollars exactly.
func dollars(nano int64) string { return fmt.Sprintf("%d.%09d", nano/1e9, nano%1e9) }

// Bounds of the list of an endpoint's models that goes into a refusal.
const (
	maxListed = 20
	listTime  = 5 * time.Second
)

// refusal puts into words why no model was found; where there is an endpoint and no choice, it lists what the endpoint has.
func (m *models) refusal(ctx context.Context, err error) error {
	var none *config.NoModelError
	var choose *config.ChooseModelError
	switch {
	case errors.As(err, &none):
		return wire.Errorf(wire.NoModel, "%v", err)
	case errors.As(err, &choose):
		return wire.Errorf(wire.NoModel, "%v", err).Do(m.listed(ctx, choose))
	}
	return wire.Errorf(wire.Unprocessable, "%v", err)
}

func (m *models) listed(ctx context.Context, choose *config.ChooseModelError) string {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	p, err := m.provider(choose.Endpoint)
	if err != nil {
		return err.Error()
	}
	var names []string
	if lister, ok := p.(interface {
		List(context.Context) ([]string, error)
	}); ok {
		names, err = lister.List(ctx)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("it does not list its models: %.200s", strings.Join(strings.Fields(err.Error()), " "))
	case len(names) == 0:
		return "it lists no models"
	}
	more := ""
	if len(names) > maxListed {
		more = fmt.Sprintf(" and %d more", len(names)-maxListed)
		names = names[:maxListed]
	}
	return "it has " + strings.Join(names, ", ") + more
}

func (m *models) names() []string {
	names := []string{}
	for _, c := range m.config.Models {
		names = append(names, c.Name)
	}
	return append(names, "script:tour")
}

// Models lists the models that are configured, and the built-in one.
func (d *daemon) Models(ctx context.Context) ([]wire.Model, error) {
	var list []wire.Model
	for _, c := range d.config.Models {
		entry := wire.Model{Name: c.Name, Type: string(c.Type), Model: c.Model, BaseURL: c.BaseURL, Default: c.Name == d.config.DefaultModel}
		if _, err := d.models.Find(ctx, c.Name); err != nil {
			entry.Problem = err.Error()
		}
		list = append(list, entry)
	}
	if !slices.ContainsFunc(list, func(m wire.Model) bool { return m.Name == "script:tour" }) {
		list = append(list, wire.Model{Name: "script:tour", Type: string(config.Script), Model: "tour"})
	}
	return list, nil
}
