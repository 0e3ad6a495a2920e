"""Says how many servers, processors, connections and bytes a rate of messages needs."""
