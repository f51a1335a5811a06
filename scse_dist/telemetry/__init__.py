"""What a run writes down: records, TensorBoard, a live line, meters and pictures."""
