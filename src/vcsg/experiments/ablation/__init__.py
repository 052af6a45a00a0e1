"""VCSG with one part changed at a time: what each part does, and how much of a gain is only the size of the step."""
