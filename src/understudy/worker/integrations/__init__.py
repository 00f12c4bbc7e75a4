"""Objects of training frameworks that a script registers whole: what they hold is registered in their place, and their loaders are led."""
