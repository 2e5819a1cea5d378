// Sums over all rows of a client: the normalised weights alpha before the student's passes, and the loss after them.
// Included by isa.inl.

// weight -> alpha, over the valid rows in their order; the teacher's constant of each divergence.
void normalise(const Client& c, const Options& o) {
  const RowNumbers& r = c.rows;
  if (c.teacher_rows == TeacherRows::logits) {
    std::memcpy(r.constant, r.teacher_sum, size_t(c.batch) * sizeof(double));
    log<double>(r.constant, c.batch);
    if (o.divergence == Divergence::kl)
      for (int64_t i = 0; i < c.batch; ++i) r.constant[i] = -r.constant[i];
    if (o.adaptive) log_weights(c, o);
  }
  const double infinity = std::numeric_limits<double>::infinity();
  double top = -infinity, sum = 0;
  for (int64_t i = 0; i < c.batch; ++i) {
    if (c.rows.label[i] < 0) r.weight[i] = -infinity;
    else if (!o.adaptive) r.weight[i] = 0;
    top = r.weight[i] > top ? r.weight[i] : top;
  }
  if (top == -infinity) top = 0;  // no valid row: every weight becomes 0
  if (c.has_normalizer && c.log_normalizer > top) top = c.log_normalizer;
  for (int64_t i = 0; i < c.batch; ++i) r.weight[i] -= top;
  exp_nonpositive<double>(r.weight, c.batch);
  for (int64_t i = 0; i < c.batch; ++i) sum += r.weight[i];
  if (c.has_normalizer) {
    sum = c.log_normalizer - top;
    exp_nonpositive<double>(&sum, 1);
    sum *= double(c.valid);
  }
  for (int64_t i = 0; i < c.batch; ++i) r.weight[i] = sum > 0 ? r.weight[i] / sum : r.weight[i] * sum;
}

// sum_i alpha_i D_i.
double weighted_divergence(const Client& c, const Options& o) {
  const RowNumbers& r = c.rows;
  log<double>(r.student_sum, c.batch);
  const bool raw = c.teacher_rows == TeacherRows::logits;
  double asd = 0;
  for (int64_t i = 0; i < c.batch; ++i) {
    if (r.label[i] < 0) continue;
    double d = r.cross[i];
    if (o.divergence == Divergence::kl)
      d = forward_kl(raw ? r.cross[i] / r.teacher_sum[i] : r.cross[i], r.constant[i], r.student_sum[i]);
    if (o.divergence == Divergence::reverse_kl) d = reverse_kl(r.cross[i], r.constant[i], r.student_sum[i]);
    asd += r.weight[i] * (d < 0 ? 0 : d);  // a divergence is not negative; only rounding makes it so
  }
  return asd;
}

// sum_i -log u_i[y_i].
double cross_entropy(const Client& c) {
  const RowNumbers& r = c.rows;
  log<double>(r.ce_sum, c.batch);
  double ce = 0;
  for (int64_t i = 0; i < c.batch; ++i)
    if (r.label[i] >= 0) ce += r.ce_sum[i] + r.ce_margin[i];
  return ce;
}

double loss(const Client& c, const Options& o) {
  double sum = 0;
  if (o.asd_weight != 0) sum += o.asd_weight * weighted_divergence(c, o);
  if (o.ce_weight != 0 && c.valid > 0) sum += o.ce_weight * cross_entropy(c) / double(c.valid);
  return sum;
}
