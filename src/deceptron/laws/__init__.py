"""What is believed of a row before its data: Gaussian laws, the noise, and the odds of each."""
