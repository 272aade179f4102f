"""The files of log and queues as a broker has them open after load."""
