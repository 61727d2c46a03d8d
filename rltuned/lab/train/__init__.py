"""The offline half: learning, evaluating and exporting policies. The daemon never imports it."""
