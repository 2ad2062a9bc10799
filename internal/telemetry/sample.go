package telemetry

import "github.com/prometheus/client_golang/prometheus"

// sampler asks for a Sample at each scrape.
type sampler struct {
	take func() Sample
	all  []sampled
}

type sampled struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Sample) float64
}

func newSampler(take func() Sample) *sampler {
	s := &sampler{take: take}
	add := func(name, help string, value func(*Sample) float64, labels ...string) {
		fixed := prometheus.Labels{}
		for i := 0; i+1 < len(labels); i += 2 {
			fixed[labels[i]] = labels[i+1]
		}
		s.all = append(s.all, sampled{prometheus.NewDesc(name, help, nil, fixed), prometheus.GaugeValue, value})
	}
	const outbox, rows = "soma_outbox_rows", "Outbox rows: waiting for a turn, for their time, or only for their removal."
	add(outbox, rows, func(s *Sample) float64 { return float64(s.Outbox) }, "state", "waiting")
	add(outbox, rows, func(s *Sample) float64 { return float64(s.Alarms) }, "state", "alarm")
	add(outbox, rows, func(s *Sample) float64 { return float64(s.Delivered) }, "state", "delivered")
	add("soma_activations_warm", "Neurons in memory.", func(s *Sample) float64 { return float64(s.Warm) })
	add("soma_mailbox_deliveries", "Deliveries in mailboxes.", func(s *Sample) float64 { return float64(s.Mailbox) })
	add("soma_handlers_running", "Handlers that run.", func(s *Sample) float64 { return float64(s.Running) })
	add("soma_commit_queue_records", "Records that wait for a commit or are in one.", func(s *Sample) float64 { return float64(s.Records) })
	add("soma_executions_open", "Executions without an outcome.", func(s *Sample) float64 { return float64(s.Executions) })
	add("soma_pykernels", "Live python kernels.", func(s *Sample) float64 { return float64(s.PyKernels) })
	add("soma_places_held", "Places that this node holds.", func(s *Sample) float64 { return float64(s.Places) })
	add("soma_store_bytes", "Size of the database.", func(s *Sample) float64 { return float64(s.StoreBytes) })
	add("soma_store_wal_bytes", "Size of its write-ahead log.", func(s *Sample) float64 { return float64(s.WALBytes) })
	add("soma_feed_drops_total", "Times that a follower was too slow and was sent to the store.", func(s *Sample) float64 { return float64(s.FeedDrops) })
	s.all[len(s.all)-1].kind = prometheus.CounterValue
	return s
}

// Describe sends the names.
func (s *sampler) Describe(to chan<- *prometheus.Desc) {
	for _, one := range s.all {
		to <- one.desc
	}
}

// Collect sends what is there now.
func (s *sampler) Collect(to chan<- prometheus.Metric) {
	sample := s.take()
	for _, one := range s.all {
		if v := one.value(&sample); v >= 0 {
			to <- prometheus.MustNewConstMetric(one.desc, one.kind, v)
		}
	}
}
