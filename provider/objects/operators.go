package objects

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/profiler/database"
)

// OperatorsLabel marks a ConfigMap of the provider's namespace as a holder of operators' profiles. Each of
// its values is a file that "faas-infer profile export" wrote, or such a file compressed by gzip.
const OperatorsLabel = "faas-infer.dev/operators"

// maxOperators is the maximum size in bytes of a file that was decompressed.
const maxOperators = 64 << 20

// ReadOperators returns the rows in a ConfigMap. problems says which of its values or lines cannot be
// used, each with the ConfigMap's name and the key. The other rows are used.
func ReadOperators(c *corev1.ConfigMap) (db *database.Database, problems []string) {
	files := maps.Clone(c.BinaryData)
	if files == nil {
		files = map[string][]byte{}
	}
	for key, text := range c.Data {
		files[key] = []byte(text)
	}
	db = &database.Database{}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		where := fmt.Sprintf("ConfigMap %s/%s, key %s: ", c.Namespace, c.Name, key)
		one, damage, err := decodeOperators(files[key])
		if err != nil {
			problems = append(problems, where+err.Error())
			continue
		}
		if len(damage) > 0 {
			problems = append(problems, fmt.Sprintf("%s%d damaged parts are left out, the first at %s", where, len(damage), damage[0]))
		}
		db.Merge(one)
	}
	if len(files) == 0 {
		problems = append(problems, fmt.Sprintf("ConfigMap %s/%s has the label %s and no value; give it a file that faas-infer profile export wrote", c.Namespace, c.Name, OperatorsLabel))
	}
	return db, problems
}

// decodeOperators reads an exported file, compressed or not.
func decodeOperators(file []byte) (*database.Database, []database.Damage, error) {
	if bytes.HasPrefix(file, []byte{0x1f, 0x8b}) {
		packed, err := gzip.NewReader(bytes.NewReader(file))
		if err == nil {
			file, err = io.ReadAll(io.LimitReader(packed, maxOperators+1))
		}
		if err == nil && len(file) > maxOperators {
			err = fmt.Errorf("it has more than %d MiB", maxOperators>>20)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("decompress it: %w", err)
		}
	}
	return database.Decode(file)
}

// OperatorsOptions say where operators' profiles come from and what becomes of them.
type OperatorsOptions struct {
	Client    kubernetes.Interface
	Namespace string
	// Engines are the engines whose rows this provider uses. It says so of a ConfigMap that has none of
	// them.
	Engines []string
	// Take keeps rows. Calls never overlap.
	Take   func(*database.Database) (database.Merged, error)
	Logger zerolog.Logger
}

// FollowOperators takes the rows of the ConfigMaps with [OperatorsLabel], now and whenever one changes,
// until ctx ends. When it returns, those that there are have been taken. It logs what cannot be used.
// Rows stay that a ConfigMap has no longer. wait waits for the end.
func FollowOperators(ctx, opening context.Context, o OperatorsOptions) (wait func(), err error) {
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = OperatorsLabel }))
	followed, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { o.take(object.(*corev1.ConfigMap)) },
		UpdateFunc: func(before, object any) {
			if c := object.(*corev1.ConfigMap); before.(*corev1.ConfigMap).ResourceVersion != c.ResourceVersion {
				o.take(c)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("follow the ConfigMaps with operators' profiles: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(opening.Done(), followed.HasSynced) {
		return factory.Shutdown, fmt.Errorf("operators' profiles could not be read from the ConfigMaps of namespace %s: %w", o.Namespace, context.Cause(opening))
	}
	return factory.Shutdown, nil
}

// take takes the rows of one ConfigMap.
func (o OperatorsOptions) take(c *corev1.ConfigMap) {
	db, problems := ReadOperators(c)
	for _, problem := range problems {
		o.Logger.Error().Msg("operators' profiles cannot be used: " + problem)
	}
	var of []string
	used := false
	for _, m := range db.Machines() {
		of = append(of, fmt.Sprintf("%s (%s)", m.Machine, m.Engine))
		used = used || slices.Contains(o.Engines, m.Engine)
	}
	if len(of) == 0 {
		return
	}
	log := o.Logger.With().Str("configmap", c.Namespace+"/"+c.Name).Strs("of", of).Logger()
	if !used {
		log.Error().Msgf("none of the operators' profiles can be used: the provider's engines are %s; measure again with this version of faas-infer", strings.Join(o.Engines, " and "))
	}
	merged, err := o.Take(db)
	if err != nil {
		log.Error().Err(err).Msg("operators' profiles were not imported")
		return
	}
	log.Info().Int("new", merged.Added).Int("newer", merged.Replaced).Int("older", merged.Older).Int("same", merged.Same).Msg("imported operators' profiles")
}
